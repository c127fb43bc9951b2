//! Tests of the control state of a cluster of hosts.
