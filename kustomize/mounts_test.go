package kustomize

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-ratelimit/sluice/server/testcert"
)

// secrets are those that README.md tells users to create, with their keys.
var secrets = map[string][]string{"sluice-tls": {"tls.crt", "tls.key", "ca.crt"}, "sluice-store": {"auth"}}

// mount is a volume in a container.
type mount struct {
	path     string
	writable bool
}

// mountVolumes writes the volumes of a container to dir, as the kubelet does.
func (o *objects) mountVolumes(dir string, c *corev1.Container, pod *corev1.PodSpec) ([]mount, error) {
	var all []mount
	for _, m := range c.VolumeMounts {
		if m.SubPath != "" {
			return nil, fmt.Errorf("%s is mounted by subPath, and would never be updated", m.MountPath)
		}
		volume := find(pod.Volumes, func(v *corev1.Volume) bool { return v.Name == m.Name })
		if volume == nil {
			return nil, fmt.Errorf("%s: there is no volume %s", m.MountPath, m.Name)
		}
		at := below(dir, m.MountPath)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return nil, err
		}
		switch {
		case volume.ConfigMap != nil:
			if err := o.writeConfigMap(at, volume.ConfigMap); err != nil {
				return nil, fmt.Errorf("%s: %w", m.MountPath, err)
			}
		case volume.Secret != nil:
			if err := writeSecret(at, volume.Secret); err != nil {
				return nil, fmt.Errorf("%s: %w", m.MountPath, err)
			}
		case volume.EmptyDir != nil:
			if volume.EmptyDir.SizeLimit == nil {
				return nil, fmt.Errorf("volume %s has no sizeLimit", m.Name)
			}
		default:
			return nil, fmt.Errorf("volume %s is of a kind that this test does not know", m.Name)
		}
		if volume.EmptyDir == nil && !m.ReadOnly {
			return nil, fmt.Errorf("%s is not mounted readOnly", m.MountPath)
		}
		all = append(all, mount{path: m.MountPath, writable: volume.EmptyDir != nil && !m.ReadOnly})
	}
	return all, nil
}

// writeConfigMap writes files behind a symbolic link, ..data, which the kubelet replaces when the ConfigMap changes.
func (o *objects) writeConfigMap(at string, source *corev1.ConfigMapVolumeSource) error {
	for _, one := range o.all {
		config, ok := one.(*corev1.ConfigMap)
		if !ok || config.Name != source.Name {
			continue
		}
		if err := os.Mkdir(filepath.Join(at, "..version"), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("..version", filepath.Join(at, "..data")); err != nil {
			return err
		}
		keys := map[string]string{}
		for key := range config.Data {
			keys[key] = key
		}
		if source.Items != nil {
			clear(keys)
		}
		for _, item := range source.Items {
			keys[item.Key] = item.Path
		}
		for key, name := range keys {
			text, there := config.Data[key]
			if !there {
				return fmt.Errorf("ConfigMap %s has no key %s", source.Name, key)
			}
			if err := os.WriteFile(filepath.Join(at, "..version", name), []byte(text), 0o600); err != nil {
				return err
			}
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(at, name)); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("there is no ConfigMap %s", source.Name)
}

// writeSecret writes the contents of a Secret that the user creates: a password, or a certificate for both client and
// server.
func writeSecret(at string, source *corev1.SecretVolumeSource) error {
	switch keys := secrets[source.SecretName]; {
	case keys == nil:
		return fmt.Errorf("README.md does not mention a Secret %s", source.SecretName)
	case len(keys) == 1:
		if err := os.MkdirAll(at, 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(at, keys[0]), []byte("password"), 0o600)
	}
	authority, err := testcert.New("authority")
	if err != nil {
		return err
	}
	pair, err := authority.Issue(testcert.Leaf{Names: []string{"sluice", "envoy"}})
	if err != nil {
		return err
	}
	_, err = testcert.Mount(at, pair, authority.PEM)
	return err
}

// hostArg returns an argument with the container's paths replaced by those in dir. A path without a mount is an error.
func hostArg(arg, dir string, mounts []mount) (string, error) {
	flag, value, _ := strings.Cut(arg, "=")
	socket, isSocket := strings.CutPrefix(value, "unix://")
	if isSocket {
		value = socket
	}
	if !path.IsAbs(value) {
		return arg, nil
	}
	for _, m := range mounts {
		if value != m.path && !strings.HasPrefix(value, m.path+"/") {
			continue
		}
		if isSocket {
			if !m.writable {
				return "", fmt.Errorf("%s: the volume is not writable", arg)
			}
			return flag + "=unix://" + below(dir, value), nil
		}
		return flag + "=" + below(dir, value), nil
	}
	return "", fmt.Errorf("%s: nothing is mounted there", arg)
}

func find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}
