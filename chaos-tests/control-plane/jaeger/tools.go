//go:build tools

// Package tools pins the Jaeger all-in-one program that the control plane harness builds.
package tools

import _ "github.com/jaegertracing/jaeger/cmd/jaeger"
