package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"log"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	// Each of these registers its endpoint with the simulator.
	_ "github.com/vmware/govmomi/lookup/simulator"
	_ "github.com/vmware/govmomi/pbm/simulator"
	_ "github.com/vmware/govmomi/sts/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator"
)

// Options describe one simulated vCenter.
type Options struct {
	Listen     string // host:port of the vSphere endpoint; port 0 picks a free one
	Model      *simulator.Model
	APIVersion string
	Username   string // empty: any non-empty pair logs in
	Password   string
	TLS        *tls.Config // nil serves plain HTTP

	InstanceUUID   string // about.instanceUuid; empty picks a random one
	MoRefBase      int64  // numbers of managed objects start behind it; 0 derives it from InstanceUUID
	Strict         bool
	DRS            string // off | manual | partiallyAutomated | fullyAutomated, for every cluster
	Delay          time.Duration
	SessionTimeout time.Duration // 0: sessions live for ever
	TaskRetention  time.Duration // finished tasks are forgotten after it; 0: never
	LeaseTimeout   time.Duration // imports nobody goes on with are given up after it; 0: never

	PCI map[string][]string // hardware labels of PCI devices by the name of their host; "" is every one

	Templates []string
	Template  TemplateShape
	Guest     GuestSettings
}

// Instance is one simulated vCenter with everything this program adds to the simulator.
type Instance struct {
	options Options
	model   *simulator.Model
	service *simulator.Service
	server  *simulator.Server

	hub      *hub
	counters *counters
	delays   *delays
	rules    *faultRules
	guests   *guests
	accounts *accounts
	access   *access
	claims   *claims
	leases   *leases
	macs     macAddresses
	places   placements
	policies policies
}

// instances finds the Instance of a registry: the simulator makes some objects of ours by
// reflection, so they cannot carry a pointer to it.
var instances sync.Map

func instanceOf(ctx *simulator.Context) *Instance {
	found, ok := instances.Load(ctx.Map)
	if !ok {
		return nil
	}
	return found.(*Instance)
}

// Start builds the inventory and serves it.
func Start(options Options) (*Instance, error) {
	if options.InstanceUUID == "" {
		options.InstanceUUID = uuid.NewString()
	}
	if options.MoRefBase == 0 {
		options.MoRefBase = moRefBase(options.InstanceUUID)
	}
	in := &Instance{
		options:  options,
		model:    options.Model,
		counters: newCounters(),
		delays:   newDelays(options.Delay, options.Strict),
		rules:    &faultRules{},
		claims:   newClaims(),
	}
	in.macs.start(options.InstanceUUID)
	in.accounts = newAccounts(options.Username, options.Password)
	in.access = newAccess(in)
	in.leases = newLeases(in, options.LeaseTimeout)
	in.hub = newHub(in)
	in.guests = newGuests(in, options.Guest)
	err := in.build()
	if err == nil {
		err = in.serve()
	}
	if err != nil {
		if in.service != nil {
			in.model.Remove()
		}
		return nil, err
	}
	return in, nil
}

// moRefBase is a number that differs between vCenters, so that a moRef of one is unknown to others.
func moRefBase(instanceUUID string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(instanceUUID))
	return int64(h.Sum32()%90_000+1) * 10_000
}

func (in *Instance) build() error {
	// An empty vCenter first: the counter behind moRefs has to be set before the inventory is made.
	m := in.model
	wanted := *m
	m.Datacenter, m.Folder = 0, 0
	if err := m.Create(); err != nil {
		return fmt.Errorf("create the model: %w", err)
	}
	m.Datacenter, m.Folder = wanted.Datacenter, wanted.Folder
	in.service = m.Service
	in.setMoRefBase(in.options.MoRefBase)

	instances.Store(in.registry(), in)
	in.setAbout()
	in.delays.reset()
	in.registry().AddHandler(in.hub)
	if err := in.model.CreateInfrastructure(in.service.Context); err != nil {
		return fmt.Errorf("create the inventory: %w", err)
	}
	in.connectOpaqueNetworks()
	in.distinguishMachines()
	if err := in.createTemplates(); err != nil {
		return fmt.Errorf("create templates: %w", err)
	}
	in.setDRS(in.options.DRS)
	in.setSessionTimeout()
	in.registry().Handler = in.before
	if in.options.Strict {
		in.installStrict()
	}
	in.guests.adopt()
	return nil
}

func (in *Instance) registry() *simulator.Registry { return in.service.Context.Map }

// setMoRefBase makes the simulator number its objects from base+1.
func (in *Instance) setMoRefBase(base int64) {
	r := in.registry()
	marker := &mo.Folder{}
	marker.Self = types.ManagedObjectReference{Type: "Folder", Value: fmt.Sprintf("group-%d", base)}
	r.Put(marker)
	_ = r.AlignCounter()
	r.Remove(in.context(), marker.Self)
}

func (in *Instance) setAbout() {
	about := &in.serviceInstance().Content.About
	about.InstanceUuid = in.options.InstanceUUID
	if version := in.options.APIVersion; version != "" {
		about.ApiVersion = version
		about.Version = strings.Join(strings.SplitN(version+"...", ".", 4)[:3], ".")
		about.FullName = fmt.Sprintf("VMware vCenter Server %s build-%s", about.Version, about.Build)
	}
}

func (in *Instance) serviceInstance() *simulator.ServiceInstance {
	return in.registry().Get(vim25.ServiceInstance).(*simulator.ServiceInstance)
}

// distinguishMachines gives the machines of the model UUIDs of this vCenter; the simulator derives
// them from the datastore path alone, so that they would be the same in all vCenters.
func (in *Instance) distinguishMachines() {
	for _, vm := range in.machines() {
		in.registry().AtomicUpdate(in.context(), vm, []types.PropertyChange{
			{Name: "config.uuid", Val: in.derivedUUID("bios", vm.Self.Value)},
			{Name: "summary.config.uuid", Val: in.derivedUUID("bios", vm.Self.Value)},
			{Name: "config.instanceUuid", Val: in.derivedUUID("instance", vm.Self.Value)},
			{Name: "summary.config.instanceUuid", Val: in.derivedUUID("instance", vm.Self.Value)},
		})
	}
}

func (in *Instance) derivedUUID(kind, name string) string {
	base, err := uuid.Parse(in.options.InstanceUUID)
	if err != nil {
		base = uuid.NameSpaceOID
	}
	return uuid.NewSHA1(base, []byte(kind+"/"+name)).String()
}

func (in *Instance) setSessionTimeout() {
	if in.options.SessionTimeout <= 0 {
		return
	}
	in.registry().OptionManager().UpdateOptions(&types.UpdateOptions{
		ChangedValue: []types.BaseOptionValue{&types.OptionValue{
			Key:   "config.vmacore.soap.sessionTimeout",
			Value: in.options.SessionTimeout.String(),
		}},
	})
}

func (in *Instance) serve() (err error) {
	// The simulator panics when it cannot listen.
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("cannot serve: %v", cause)
		}
	}()
	in.service.RegisterEndpoints = true
	in.service.TLS = in.options.TLS
	in.service.Listen = &url.URL{Host: in.options.Listen}
	if in.options.Username != "" {
		in.service.Listen.User = url.UserPassword(in.options.Username, in.options.Password)
		in.registry().SessionManager().ValidLogin = in.accounts.valid
	}
	in.server = in.service.NewServer()
	in.server.Config.Handler = in.observed(in.withLibraryTemplates(in.server.Config.Handler))
	in.server.Config.ErrorLog = log.Default()
	if in.options.Strict {
		in.installPolicies()
	}
	return nil
}

// URL is the address of the SOAP endpoint, without credentials.
func (in *Instance) URL() string {
	u := *in.server.URL
	u.User = nil
	return u.String()
}

// Thumbprint is the SHA-256 of the served certificate in lower-case hex, or "" without TLS.
func (in *Instance) Thumbprint() string {
	if in.options.TLS == nil {
		return ""
	}
	sum := sha256.Sum256(in.server.Certificate().Raw)
	return hex.EncodeToString(sum[:])
}

// Close stops serving and removes the datastores.
func (in *Instance) Close() {
	in.guests.close()
	in.hub.close()
	in.server.CloseClientConnections()
	in.server.Close()
	instances.Delete(in.registry())
	in.model.Remove()
}

// context makes a context of our own: the simulator knows the owner of a lock by its context, so
// two actions must never share one.
func (in *Instance) context() *simulator.Context {
	ctx := *in.service.Context
	ctx.Context = context.Background()
	return &ctx
}

// clone makes a context for a task, with the caller's session but locks of its own.
func clone(ctx *simulator.Context) *simulator.Context {
	c := *ctx
	return &c
}
