//go:build tools

// Package tools pins promtool, which tries the alerts of deploy/monitoring.
package tools

import _ "github.com/prometheus/prometheus/cmd/promtool"
