// The Go library as a peer of our replicas: a provisioner on sig-storage-lib-external-provisioner whose volumes are
// directories. Tests and measurements contest one Lease with it; it is no backend to use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// settings are the flags, one field each. The defaults of the durations, workers and limits are the library's.
type settings struct {
	kubeconfig, provisioner, base string
	qps                           float64
	burst, workers                int
	lease                         bool
	leaseNamespace                string
	leaseDuration, renewDeadline  time.Duration
	retryPeriod                   time.Duration
	finalizer                     bool
}

func parse() settings {
	var s settings
	flag.StringVar(&s.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "how the API server is reached")
	flag.StringVar(&s.provisioner, "provisioner", "", "the provisioner name (required)")
	flag.StringVar(&s.base, "base", "", "where the directories are made (required)")
	flag.Float64Var(&s.qps, "qps", 5, "requests per second of the client")
	flag.IntVar(&s.burst, "burst", 10, "requests at once of the client")
	flag.IntVar(&s.workers, "workers", controller.DefaultThreadiness, "claims, and volumes, worked on at once")
	flag.BoolVar(&s.lease, "lease", true, "contest the Lease")
	flag.StringVar(&s.leaseNamespace, "lease-namespace", "default", "the namespace of the Lease")
	flag.DurationVar(&s.leaseDuration, "lease-duration", controller.DefaultLeaseDuration, "how long others wait")
	flag.DurationVar(&s.renewDeadline, "renew-deadline", controller.DefaultRenewDeadline, "when a leader gives up")
	flag.DurationVar(&s.retryPeriod, "retry-period", controller.DefaultRetryPeriod, "between two attempts")
	flag.BoolVar(&s.finalizer, "finalizer", true, "put the library's finalizer on volumes (the library's default: no)")
	flag.Parse()
	return s
}

func main() {
	if err := run(context.Background(), parse()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run never ends by itself. A SIGTERM ends the process as it stands: the library would not release the Lease either.
func run(ctx context.Context, s settings) error {
	if s.provisioner == "" || !filepath.IsAbs(s.base) {
		return errors.New("give -provisioner, and an absolute path as -base")
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot read kubeconfig %q: %w", s.kubeconfig, err)
	}
	config.QPS, config.Burst = float32(s.qps), s.burst
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	controller.NewProvisionController(klog.NewContext(ctx, klog.Background()), client, s.provisioner, directories{s.base},
		controller.LeaderElection(s.lease),
		controller.LeaderElectionNamespace(s.leaseNamespace),
		controller.LeaseDuration(s.leaseDuration),
		controller.RenewDeadline(s.renewDeadline),
		controller.RetryPeriod(s.retryPeriod),
		controller.Threadiness(s.workers),
		controller.AddFinalizer(s.finalizer),
	).Run(ctx)
	return nil
}

// directories makes a directory per volume below its base.
type directories struct{ base string }

func (d directories) Provision(
	_ context.Context, options controller.ProvisionOptions,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(d.base, options.PVName)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("cannot make volume %s: %w", options.PVName, err)
	}
	claim, class := options.PVC, options.StorageClass
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
			AccessModes:                   claim.Spec.AccessModes,
			MountOptions:                  class.MountOptions,
			VolumeMode:                    claim.Spec.VolumeMode,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path},
			},
		},
	}
	return volume, controller.ProvisioningFinished, nil
}

func (d directories) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	source := volume.Spec.HostPath
	if source == nil || filepath.Dir(source.Path) != d.base {
		return &controller.IgnoredError{Reason: "the volume is not below " + d.base}
	}
	return os.RemoveAll(source.Path)
}
