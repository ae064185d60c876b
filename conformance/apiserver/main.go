// Command apiserver runs Kubernetes' API server and etcd in one process, on loopback, without
// controllers or kubelets. It validates objects as a cluster does.
//
// It writes the file kubeconfig into the given directory, prints "ready" when both servers answer,
// and exits at the end of standard input.
package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
	_ "time/tzdata" // to validate the time zones of CronJobs

	"go.etcd.io/etcd/server/v3/embed"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: apiserver DIRECTORY")
		os.Exit(2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin)) // wait for the end of standard input
		cancel()
	}()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(1)
	}
}

// run returns when ctx is done or the server has stopped.
func run(ctx context.Context, dir string) error {
	etcd, err := startEtcd(ctx, dir)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer etcd.Close()
	opts, err := configure(ctx, dir, "http://"+etcd.Clients[0].Addr().String())
	if err != nil {
		return err
	}
	config, err := app.NewConfig(opts)
	if err != nil {
		return err
	}
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	server, err := app.CreateServerChain(completed)
	if err != nil {
		return err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(prepared.Run(ctx)) }()
	client := server.GenericAPIServer.LoopbackClientConfig
	if err := await(ctx, client); err != nil {
		return err
	}
	if err := writeKubeconfig(dir, client); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// startEtcd starts etcd without fsync, which tests do not need.
func startEtcd(ctx context.Context, dir string) (*embed.Etcd, error) {
	config := embed.NewConfig()
	config.Dir = filepath.Join(dir, "etcd")
	config.LogLevel = "error"
	config.UnsafeNoFsync = true
	free := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.ListenPeerUrls = []url.URL{free}, []url.URL{free}
	config.AdvertiseClientUrls, config.AdvertisePeerUrls = config.ListenClientUrls, config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// configure returns the options of a server on a free port.
func configure(ctx context.Context, dir, etcd string) (options.CompletedOptions, error) {
	s := options.NewServerRunOptions()
	var none options.CompletedOptions
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return none, err
	}
	address := listener.Addr().(*net.TCPAddr)
	s.SecureServing.Listener, s.SecureServing.BindPort = listener, address.Port
	s.SecureServing.BindAddress, s.SecureServing.ExternalAddress = address.IP, address.IP
	s.SecureServing.ServerCert.CertDirectory = filepath.Join(dir, "certificates")
	s.EndpointReconcilerType = "none" // the default rejects loopback
	s.Etcd.StorageConfig.Transport.ServerList = []string{etcd}
	s.ServiceClusterIPRanges = "10.0.0.0/16"
	s.Authorization.Modes = []string{"RBAC"}
	// The plugin would wait for the controller that creates the default account of each namespace.
	s.Admission.GenericAdmission.DisablePlugins = []string{"ServiceAccount"}
	key := filepath.Join(dir, "accounts.key")
	if err := writeKey(key); err != nil {
		return none, err
	}
	s.ServiceAccountSigningKeyFile = key
	s.Authentication.ServiceAccounts.Issuers = []string{"https://" + address.String()}
	s.Authentication.ServiceAccounts.KeyFiles = []string{key}
	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return none, err
	}
	completed, err := s.Complete(ctx)
	if err != nil {
		return none, err
	}
	return completed, utilerrors.NewAggregate(completed.Validate())
}

// writeKey creates the key that signs tokens of service accounts.
func writeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	text, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text}), 0o600)
}

// await returns when the server is ready.
func await(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	last := errors.New("no request was sent")
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(response.Status)
		}
		last = err
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w before it was ready: %w", context.Cause(ctx), last)
		}
	}
}

// writeKubeconfig writes a configuration with all rights.
func writeKubeconfig(dir string, client *rest.Config) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: client.Host, TLSServerName: client.ServerName, CertificateAuthorityData: client.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: client.BearerToken}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	return clientcmd.WriteToFile(*config, filepath.Join(dir, "kubeconfig"))
}
