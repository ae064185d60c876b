package kustomize

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// TestEnvoy reports that configurations are not validated if there is no Envoy.
func TestEnvoy(t *testing.T) { suite.Envoy(t, "..") }

// bootstrap is the part of Envoy's configuration that this test checks. Envoy itself validates all of it.
type bootstrap struct {
	Static struct {
		Listeners []struct {
			Name    string  `json:"name"`
			Address address `json:"address"`
		} `json:"listeners"`
		Clusters []cluster `json:"clusters"`
	} `json:"static_resources"`
}

type cluster struct {
	Name       string `json:"name"`
	Assignment struct {
		Endpoints []struct {
			LB []struct {
				Endpoint struct {
					Address address `json:"address"`
				} `json:"endpoint"`
			} `json:"lb_endpoints"`
		} `json:"endpoints"`
	} `json:"load_assignment"`
}

type address struct {
	Socket struct {
		Address string `json:"address"`
		Port    int32  `json:"port_value"`
	} `json:"socket_address"`
	Pipe struct {
		Path string `json:"path"`
	} `json:"pipe"`
}

func (c *cluster) addresses() []address {
	var all []address
	for _, locality := range c.Assignment.Endpoints {
		for _, endpoint := range locality.LB {
			all = append(all, endpoint.Endpoint.Address)
		}
	}
	return all
}

// checkProxy checks the configuration of an Envoy in a pod with Envoy, and compares it with the sluice that it calls.
func (o *objects) checkProxy(workload object, template *corev1.PodTemplateSpec) {
	for i := range template.Spec.Containers {
		c := &template.Spec.Containers[i]
		if c.Image != proxy {
			continue
		}
		if err := o.checkEnvoy(workload, c, template); err != nil {
			o.addProblem("%s: %v", workload.GetName(), err)
		}
	}
}

func (o *objects) checkEnvoy(workload object, c *corev1.Container, template *corev1.PodTemplateSpec) error {
	dir, err := os.MkdirTemp(scratch, "")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // TestMain removes scratch
	mounts, err := o.mountVolumes(dir, c, &template.Spec)
	if err != nil {
		return err
	}
	if len(c.Args) < 2 || c.Args[0] != "--config-path" {
		return fmt.Errorf("the arguments are %q, want --config-path first", c.Args)
	}
	at, err := hostArg("="+c.Args[1], dir, mounts)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(at[1:])
	if err != nil {
		return err
	}
	if err := validate(string(text)); err != nil {
		return err
	}
	var config bootstrap
	if err := yaml.Unmarshal(text, &config); err != nil {
		return err
	}
	declared := map[int32]string{}
	for _, port := range c.Ports {
		declared[port.ContainerPort] = port.Name
	}
	for _, l := range config.Static.Listeners {
		if l.Address.Socket.Address == "127.0.0.1" {
			continue
		}
		if declared[l.Address.Socket.Port] != l.Name {
			return fmt.Errorf("listener %s is on port %d, which is not declared", l.Name, l.Address.Socket.Port)
		}
		delete(declared, l.Address.Socket.Port)
	}
	if len(declared) > 0 {
		return fmt.Errorf("no listener is on %v", declared)
	}
	asked := find(config.Static.Clusters, func(c *cluster) bool { return c.Name == "sluice" })
	if asked == nil {
		return errors.New("Envoy has no cluster sluice")
	}
	var all dict
	if err := yaml.Unmarshal(text, &all); err != nil {
		return err
	}
	if err := o.checkFilter(all); err != nil {
		return err
	}
	return o.checkAddresses(asked.addresses(), workload, c, template)
}

// validations are the results by configuration.
var validations memo

// validate validates a configuration with the real Envoy.
func validate(text string) error {
	return validations.do(text, func() error {
		binary, err := envoy.Find("..")
		if errors.Is(err, envoy.ErrNotInstalled) {
			return nil // reported by TestEnvoy
		} else if err != nil {
			return err
		}
		dir, err := os.MkdirTemp(scratch, "")
		if err != nil {
			return err
		}
		name := filepath.Join(dir, "envoy.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return envoy.Validate(ctx, binary, name)
	})
}

var ruledDomain = regexp.MustCompile(`(?m)^domain: (\S+)$`)

// checkDomain checks that the domain of a filter has rules.
func (o *objects) checkDomain(domain string) error {
	ruled := map[string]bool{}
	for _, one := range o.all {
		config, ok := one.(*corev1.ConfigMap)
		if !ok || !strings.HasPrefix(config.Name, "sluice-rules") {
			continue
		}
		for _, rules := range config.Data {
			for _, found := range ruledDomain.FindAllStringSubmatch(rules, -1) {
				ruled[found[1]] = true
			}
		}
	}
	if !ruled[domain] {
		return fmt.Errorf("there are no rules for domain %s", domain)
	}
	return nil
}

// checkAddresses checks that there is a sluice at each address, and that each sluice has one.
func (o *objects) checkAddresses(all []address, workload object, c *corev1.Container, template *corev1.PodTemplateSpec) error {
	if len(all) == 0 {
		return errors.New("the cluster sluice has no endpoints")
	}
	named := map[string]bool{}
	for _, a := range all {
		beside := o.sluiceIn(template)
		switch {
		case a.Pipe.Path != "":
			if beside == nil || beside.addrs["grpc"] != "unix://"+a.Pipe.Path {
				return fmt.Errorf("no sluice in the pod listens on %s", a.Pipe.Path)
			}
			ours, theirs := volumeOf(beside.container, a.Pipe.Path), volumeOf(c, a.Pipe.Path)
			if ours == "" || ours != theirs {
				return fmt.Errorf("%s is on volume %q in sluice and %q in Envoy", a.Pipe.Path, ours, theirs)
			}
			// They run as different users without a common group.
			if mode := beside.flags["grpc-socket-mode"]; mode != "0666" {
				return fmt.Errorf("the socket's mode is %q: Envoy may not connect", mode)
			}
		case a.Socket.Address == "127.0.0.1":
			if beside == nil || beside.addrs["grpc"] != hostPort(a) {
				return fmt.Errorf("no sluice in the pod listens on %s", hostPort(a))
			}
		default:
			if err := o.checkName(a.Socket.Address, a.Socket.Port, workload.GetNamespace()); err != nil {
				return err
			}
			named[a.Socket.Address] = true
		}
	}
	for _, one := range o.all {
		set, ok := one.(*appsv1.StatefulSet)
		if ok && len(named) != int(*set.Spec.Replicas) {
			return fmt.Errorf("Envoy has %d of the %d replicas of %s", len(named), *set.Spec.Replicas, set.Name)
		}
	}
	return nil
}

func hostPort(a address) string { return a.Socket.Address + ":" + strconv.Itoa(int(a.Socket.Port)) }

// sluiceIn returns the sluice in a pod, or nil.
func (o *objects) sluiceIn(template *corev1.PodTemplateSpec) *instance {
	for _, in := range o.instances() {
		if in.template == template {
			return in
		}
	}
	return nil
}

// volumeOf returns the name of the volume that contains a path of a container.
func volumeOf(c *corev1.Container, path string) string {
	for _, m := range c.VolumeMounts {
		if strings.HasPrefix(path, m.MountPath+"/") {
			return m.Name
		}
	}
	return ""
}

// checkName checks that a DNS name and a port refer to the gRPC listener of sluice. Names are
// SERVICE.NAMESPACE.svc.cluster.local, or POD.SERVICE in the caller's namespace.
func (o *objects) checkName(name string, port int32, namespace string) error {
	parts := strings.Split(strings.TrimSuffix(name, ".svc.cluster.local"), ".")
	if len(parts) != 2 {
		return fmt.Errorf("%s is not a name that this test supports", name)
	}
	if strings.HasSuffix(name, ".svc.cluster.local") {
		return o.checkServiceName(parts[0], parts[1], port)
	}
	at := strings.LastIndex(parts[0], "-")
	index, err := strconv.Atoi(parts[0][at+1:])
	set, found := findObject[*appsv1.StatefulSet](o, namespace, parts[0][:max(at, 0)])
	if err != nil || !found || set.Spec.ServiceName != parts[1] || index >= int(*set.Spec.Replicas) {
		return fmt.Errorf("there is no pod %s", name)
	}
	service, found := findObject[*corev1.Service](o, namespace, parts[1])
	if !found || service.Spec.ClusterIP != corev1.ClusterIPNone {
		return fmt.Errorf("%s is not a headless Service", parts[1])
	}
	return o.checkServiceName(parts[1], namespace, port)
}

func (o *objects) checkServiceName(name, namespace string, port int32) error {
	service, found := findObject[*corev1.Service](o, namespace, name)
	if !found {
		return fmt.Errorf("there is no Service %s in %s", name, namespace)
	}
	if find(service.Spec.Ports, func(p *corev1.ServicePort) bool { return p.Port == port && p.Name == "grpc" }) == nil {
		return fmt.Errorf("port %d of Service %s is not for gRPC", port, name)
	}
	return nil
}
