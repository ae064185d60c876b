package kustomize

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const repository = "ghcr.io/sluice-ratelimit/sluice"

// instance is a container that runs sluice.
type instance struct {
	of        string
	template  *corev1.PodTemplateSpec
	container *corev1.Container
	pod       *corev1.PodSpec
	// sidecar is true if it starts before the pod's containers and stops after them.
	sidecar bool
	flags   map[string]string
	// addrs are the addresses of its listeners, by name.
	addrs map[string]string
}

// instances returns the containers that run sluice.
func (o *objects) instances() []*instance {
	var all []*instance
	for workload, template := range o.pods() {
		for i := range template.Spec.Containers {
			all = append(all, &instance{of: workload.GetName(), template: template, container: &template.Spec.Containers[i], pod: &template.Spec})
		}
		for i := range template.Spec.InitContainers {
			all = append(all, &instance{of: workload.GetName(), template: template, container: &template.Spec.InitContainers[i], pod: &template.Spec, sidecar: true})
		}
	}
	var ours []*instance
	for _, in := range all {
		if name, _, _ := strings.Cut(in.container.Image, ":"); name != repository {
			continue
		}
		if err := in.read(); err != nil {
			o.addProblem("%s: %v", in.of, err)
			continue
		}
		ours = append(ours, in)
	}
	return ours
}

// read parses the command line.
func (in *instance) read() error {
	// Under the name ratelimit misspelt flags only cause warnings.
	if len(in.container.Command) != 1 || in.container.Command[0] != "/bin/sluice" {
		return fmt.Errorf("the command is %q, want /bin/sluice", in.container.Command)
	}
	if len(in.container.Args) == 0 || in.container.Args[0] != "serve" {
		return fmt.Errorf("the arguments are %q, want serve first", in.container.Args)
	}
	return in.parse(in.container.Args[1:])
}

// parse parses the flags. If a flag occurs twice, the last one applies.
func (in *instance) parse(args []string) error {
	in.flags = map[string]string{}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "--") {
			return fmt.Errorf("argument %q: want --flag=value", arg)
		}
		in.flags[name[2:]] = value
	}
	in.addrs = map[string]string{}
	for _, name := range []string{"grpc", "http", "debug", "metrics"} {
		addr, err := in.flag(name + "-addr")
		if err != nil {
			return err
		}
		in.addrs[name] = addr
	}
	return nil
}

// flag returns the value of a flag, or its default if it is not set.
func (in *instance) flag(name string) (string, error) {
	if value, given := in.flags[name]; given {
		return value, nil
	}
	return defaultOf(name)
}

func (in *instance) duration(name string) (time.Duration, error) {
	value, err := in.flag(name)
	if err != nil {
		return 0, err
	}
	return time.ParseDuration(value)
}

// externalPort returns the port of a listener that other pods can reach. It is 0 if the listener is disabled, on
// loopback or on a unix socket.
func (in *instance) externalPort(listener string) int32 {
	host, digits, err := net.SplitHostPort(in.addrs[listener])
	if err != nil || net.ParseIP(host).IsLoopback() || host == "localhost" {
		return 0
	}
	port, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return 0
	}
	return int32(port)
}

// listenerAt returns the name of the listener on a port that other pods can reach.
func (in *instance) listenerAt(port int32) string {
	for name := range in.addrs {
		if port != 0 && in.externalPort(name) == port {
			return name
		}
	}
	return ""
}

// baseMemory is the memory that the program needs in addition to counters: up to 64 MiB that hostile callers can make
// it allocate, and 32 MiB of its own.
const baseMemory = 96 << 20

// shutdownTime is the time that sluice needs to exit after draining.
const shutdownTime = 10 * time.Second

// checkResources compares the pod's limits with the flags.
func (o *objects) checkResources(in *instance) {
	text, err := in.flag("counter-memory")
	if err != nil {
		o.addProblem("%s: %v", in.of, err)
		return
	}
	counters, err := resource.ParseQuantity(strings.TrimSuffix(text, "B"))
	if err != nil {
		o.addProblem("%s: --counter-memory=%s: %v", in.of, text, err)
	}
	limit := in.container.Resources.Limits.Memory()
	if left := limit.Value()/10*9 - counters.Value(); left < baseMemory {
		o.addProblem("%s: a memory limit of %s leaves %d MiB in addition to --counter-memory=%s, want %d", in.of, limit, left>>20, text, baseMemory>>20)
	}
	delay, err1 := in.duration("drain-delay")
	timeout, err2 := in.duration("drain-timeout")
	if err := errors.Join(err1, err2); err != nil {
		o.addProblem("%s: %v", in.of, err)
	}
	needed := delay + timeout + shutdownTime
	if in.sidecar {
		// A sidecar stops after the other containers, in the time that they leave.
		for _, c := range in.pod.Containers {
			needed += preStop(&c)
			if preStop(&c) == 0 {
				o.addProblem("%s: container %s has no preStop, so its connections end with it", in.of, c.Name)
			}
		}
		if delay != 0 {
			o.addProblem("%s: --drain-delay=%s in a sidecar, which has no callers when it stops", in.of, delay)
		}
	} else if delay < 11*time.Second {
		o.addProblem("%s: --drain-delay=%s, want more than the time of two health checks of Envoy", in.of, delay)
	}
	if grace := in.pod.TerminationGracePeriodSeconds; grace == nil || time.Duration(*grace)*time.Second < needed {
		o.addProblem("%s: terminationGracePeriodSeconds is shorter than the drain, %s", in.of, needed)
	}
}

func preStop(c *corev1.Container) time.Duration {
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Sleep == nil {
		return 0
	}
	return time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
}

// command runs a program and returns its output.
func command(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}
