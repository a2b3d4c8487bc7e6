// Command vcsim is a vCenter to test against: the simulator of govmomi with a control interface,
// guests that behave, and without most of the simulator's lies (README.md lists them).
package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/vmware/govmomi/simulator"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "vcsim:", err)
		os.Exit(1)
	}
}

// names collects a flag that may be given more than once, or with commas.
type names []string

func (n *names) String() string { return strings.Join(*n, ",") }

func (n *names) Set(value string) error {
	*n = append(*n, strings.Split(value, ",")...)
	return nil
}

type settings struct {
	Options

	serveTLS   bool
	certFile   string
	keyFile    string
	control    string
	withParent bool
}

func parse(arguments []string) (*settings, error) {
	s := &settings{Options: Options{Model: simulator.VPX(), Guest: defaultGuestSettings()}}
	m := s.Model
	m.Machine = 0
	flags := flag.NewFlagSet("vcsim", flag.ContinueOnError)
	flags.StringVar(&s.Listen, "l", "127.0.0.1:0", "`host:port` of the vSphere endpoint; port 0 picks a free one")
	flags.StringVar(&s.control, "control", "127.0.0.1:0", "`host:port` of the control interface, on loopback")
	flags.IntVar(&m.Datacenter, "dc", m.Datacenter, "datacenters")
	flags.IntVar(&m.Cluster, "cluster", m.Cluster, "clusters per datacenter")
	flags.IntVar(&m.ClusterHost, "host", m.ClusterHost, "hosts per cluster")
	flags.IntVar(&m.Host, "standalone-host", 0, "standalone hosts per datacenter")
	flags.IntVar(&m.Pool, "pool", m.Pool, "resource pools per cluster")
	flags.IntVar(&m.Datastore, "ds", m.Datastore, "datastores")
	flags.IntVar(&m.Pod, "pod", m.Pod, "datastore clusters per datacenter")
	flags.IntVar(&m.Portgroup, "pg", m.Portgroup, "distributed port groups per datacenter")
	flags.IntVar(&m.Folder, "folder", m.Folder, "datacenters that are put into folders")
	flags.IntVar(&m.Machine, "vm", m.Machine, "machines per resource pool")
	flags.BoolVar(&m.Autostart, "autostart", m.Autostart, "power these machines on")
	flags.IntVar(&m.OpaqueNetwork, "opaque", m.OpaqueNetwork, "opaque networks per datacenter")
	flags.Func("pci", "`label[@host]` of a PCI device that all hosts, or one, can pass through; may be repeated", s.offerPCI)
	flags.StringVar(&s.APIVersion, "api-version", "8.0.3.0", "API version that is advertised")
	flags.StringVar(&s.Username, "username", "", "account that may log in (default $VCSIM_USERNAME; any if none is given)")
	flags.StringVar(&s.Password, "password", "", "its password (default $VCSIM_PASSWORD, which keeps it off the command line)")
	flags.BoolVar(&s.serveTLS, "tls", true, "serve TLS")
	flags.StringVar(&s.certFile, "tlscert", "", "certificate chain `file`, PEM")
	flags.StringVar(&s.keyFile, "tlskey", "", "private key `file`, PEM")
	flags.StringVar(&s.InstanceUUID, "instance-uuid", "", "about.instanceUuid (default a random one)")
	flags.Int64Var(&s.MoRefBase, "moref-base", 0, "numbers of objects start behind it (default from -instance-uuid)")
	flags.BoolVar(&s.Strict, "strict", true, "behave like a vCenter where the simulator does not")
	flags.StringVar(&s.DRS, "drs", "fullyAutomated", "off, manual, partiallyAutomated or fullyAutomated, for all clusters")
	flags.DurationVar(&s.Delay, "delay", 0, "delay of every call")
	flags.DurationVar(&s.SessionTimeout, "session-timeout", 30*time.Minute, "idle sessions end after it; 0: never")
	flags.DurationVar(&s.LeaseTimeout, "lease-timeout", 5*time.Minute, "imports that nobody goes on with are given up after it; 0: never")
	flags.DurationVar(&s.TaskRetention, "task-retention", 10*time.Minute, "finished tasks are forgotten after it; 0: never")
	flags.Var((*names)(&s.Templates), "template", "`name` of a template to make in each datacenter; may be repeated")
	flags.Int64Var(&s.Template.DiskGiB, "template-disk", 2, "GiB of a template's disk")
	flags.StringVar(&s.Template.Firmware, "template-firmware", "efi", "bios or efi")
	flags.StringVar(&s.Template.GuestID, "template-guest", "ubuntu64Guest", "guest `id` of the templates")
	flags.BoolVar(&s.Template.InFolder, "template-folder", true, "put templates into the folder \"templates\"")
	flags.BoolVar(&s.Guest.Enabled, "guest", s.Guest.Enabled, "guests run tools and get addresses")
	flags.Float64Var(&s.Guest.DelaySeconds, "guest-delay", 0, "`seconds` from power-on to tools and addresses")
	flags.BoolVar(&s.Guest.IPv4, "guest-dhcp4", s.Guest.IPv4, "guests get IPv4 addresses")
	flags.BoolVar(&s.Guest.IPv6, "guest-ipv6", s.Guest.IPv6, "guests get IPv6 addresses")
	flags.StringVar(&s.Guest.IPv4Range, "guest-range", s.Guest.IPv4Range, "`prefix` of the IPv4 addresses")
	flags.StringVar(&s.Guest.IPv6Range, "guest-range6", s.Guest.IPv6Range, "`prefix` of the IPv6 addresses")
	flags.BoolVar(&s.withParent, "exit-with-parent", false, "end when the process that started this one is gone")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return s, s.complete()
}

func (s *settings) offerPCI(text string) error {
	label, host, _ := strings.Cut(text, "@")
	if label == "" {
		return errors.New("a device needs a label")
	}
	if s.PCI == nil {
		s.PCI = map[string][]string{}
	}
	s.PCI[host] = append(s.PCI[host], label)
	return nil
}

// complete fills in what comes from elsewhere and refuses what cannot be.
func (s *settings) complete() error {
	if s.Username == "" {
		s.Username = os.Getenv("VCSIM_USERNAME")
	}
	if s.Password == "" {
		s.Password = os.Getenv("VCSIM_PASSWORD")
	}
	if s.Username != "" && s.Password == "" {
		return errors.New("an account needs a password")
	}
	if !validDRS(s.DRS) {
		return fmt.Errorf("-drs %q is not one of off, manual, partiallyAutomated, fullyAutomated", s.DRS)
	}
	if err := s.Guest.validate(); err != nil {
		return err
	}
	if !s.serveTLS {
		return nil
	}
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if s.certFile == "" && s.keyFile == "" {
		return nil // the simulator's own certificate
	}
	pair, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
	if err != nil {
		return err
	}
	s.TLS.Certificates = []tls.Certificate{pair}
	return nil
}

func run(arguments []string) error {
	s, err := parse(arguments)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	log.SetOutput(os.Stderr)
	in, err := Start(s.Options)
	if err != nil {
		return err
	}
	defer in.Close()
	c, err := startControl(in, s.control)
	if err != nil {
		return err
	}
	defer c.close()
	if err := json.NewEncoder(os.Stdout).Encode(c.about()); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	if s.withParent {
		go watchParent(stop)
	}
	<-stop
	return nil
}

func watchParent(stop chan<- os.Signal) {
	for parent := os.Getppid(); os.Getppid() == parent; {
		time.Sleep(time.Second)
	}
	stop <- syscall.SIGTERM
}
