package dropin

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// How namespaces are created.
const (
	byRoot   = "root"
	byUserNS = "user namespace"
)

var regexpUID = regexp.MustCompile(`(?m)^Uid:\t(\d+)\t`)

func namespaceModes() []string {
	if os.Getuid() == 0 {
		return []string{byRoot, byUserNS}
	}
	return []string{byUserNS}
}

// inNamespaces returns a command that runs this test in new namespaces.
func inNamespaces(t *testing.T, mode string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDropIn$", "-test.v", "-test.count=1")
	cmd.Env = append(append(os.Environ(), insideVariable+"="+mode), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if mode == byUserNS {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

// setUpNamespaces makes mounts private and enables the loopback interface.
func setUpNamespaces() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return errors.New("mounts of one's own: " + err.Error())
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return errors.New("loopback: " + err.Error())
	}
	return unix.Close(socket)
}

// readOnly mounts dir read-only onto itself.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	check(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { check(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	var fs unix.Statfs_t
	check(t, unix.Statfs(dir, &fs))
	// A remount must keep the restrictions of the original mount.
	flags := uintptr(fs.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME)
	if fs.Flags&unix.ST_RELATIME != 0 {
		flags |= unix.MS_RELATIME
	}
	check(t, unix.Mount("", dir, "", flags|unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
}

// confinedTo returns the attributes of a process with the given user that sees only files below
// root.
func confinedTo(mode, root string, uid int) *syscall.SysProcAttr {
	if mode == byRoot {
		return &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return &syscall.SysProcAttr{
		Chroot:      root,
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: 0, Size: 1}},
	}
}

// hostUID returns the uid of a confined process as seen by this process.
func hostUID(mode string, uid int) string {
	if mode == byRoot {
		return strconv.Itoa(uid)
	}
	return "0"
}
