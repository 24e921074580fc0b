//! What is wrong with the Pods that a claim of class `WaitForFirstConsumer` waits for.

use super::{Finding, State, facts::Pod};

/// What keeps `pods` from getting the claim its node; `None` if there are no Pods.
pub(super) fn trouble(pods: &[Pod]) -> Option<Finding> {
    if let Some((pod, node)) = pods.iter().find_map(|pod| Some((pod, pod.node.as_deref()?))) {
        return Some(bypassed(pod, node));
    }
    pods.iter().find(|pod| pod.unscheduled.is_some()).or_else(|| pods.first()).map(unscheduled)
}

fn bypassed(pod: &Pod, node: &str) -> Finding {
    Finding::new(
        State::SchedulerBypassed,
        format!(
            "Pod {} is put on node {node} by spec.nodeName, past the scheduler, which is the one to choose a node for the claim",
            pod.name
        ),
    )
    .waits_for("the scheduler to choose a node for a Pod that uses the claim")
    .since(pod.created)
    .advise(format!(
        "Create the Pod without spec.nodeName and with nodeSelector kubernetes.io/hostname: {node}. A DaemonSet does this right by itself."
    ))
    .advise("Or use a class with volumeBindingMode: Immediate, if its volumes can be used on every node.")
}

fn unscheduled(pod: &Pod) -> Finding {
    let name = &pod.name;
    match &pod.unscheduled {
        Some(why) if why.reason == "SchedulingGated" => Finding::new(
            State::PodUnscheduled,
            format!("Pod {name} uses the claim but is held back by its scheduling gates"),
        )
        .waits_for(format!("the scheduling gates of Pod {name} to be lifted"))
        .since(why.since)
        .advise("See who put them there (spec.schedulingGates), and why they are still there."),
        Some(why) => Finding::new(
            State::PodUnscheduled,
            format!(
                "no node was found for Pod {name}, which uses the claim: {} ({})",
                why.message, why.reason
            ),
        )
        .waits_for(format!("the scheduler to find a node for Pod {name}"))
        .since(why.since)
        .advise("Mend what the scheduler says; as soon as it chooses a node, the volume is made there."),
        None => Finding::new(
            State::PodUnscheduled,
            format!("scheduler {:?} has not looked at Pod {name} yet, which uses the claim", pod.scheduler),
        )
        .waits_for(format!("scheduler {} to choose a node for Pod {name}", pod.scheduler))
        .since(pod.created)
        .advise(format!(
            "That takes seconds. If it does not happen, see whether a scheduler of the name {:?} runs.",
            pod.scheduler
        )),
    }
}
