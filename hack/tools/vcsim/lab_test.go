package main

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const patience = 20 * time.Second

// lab is a simulated vCenter and a client that is logged in to it.
type lab struct {
	*testing.T

	in     *Instance
	ctx    context.Context
	client *vim25.Client
	finder *find.Finder
}

func newLab(t *testing.T, change ...func(*Options)) *lab {
	t.Helper()
	options := Options{
		Listen: "127.0.0.1:0", Model: simulator.VPX(), APIVersion: "8.0.3.0", Strict: true,
		DRS: "fullyAutomated", Templates: []string{"ubuntu", "debian"},
		Template: TemplateShape{DiskGiB: 2, Firmware: "efi", GuestID: "ubuntu64Guest", InFolder: true},
		Guest:    defaultGuestSettings(), Username: "admin", Password: "secret",
	}
	options.Model.Machine = 0
	for _, c := range change {
		c(&options)
	}
	in, err := Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	l := &lab{T: t, in: in, ctx: ctx}
	l.client = l.login("admin", "secret")
	l.finder = find.NewFinder(l.client)
	dc, err := l.finder.DefaultDatacenter(ctx)
	l.must(err)
	l.finder.SetDatacenter(dc)
	return l
}

func (l *lab) connect() *vim25.Client {
	l.Helper()
	u, err := url.Parse(l.in.URL())
	l.must(err)
	client, err := vim25.NewClient(l.ctx, soap.NewClient(u, true))
	l.must(err)
	return client
}

func (l *lab) login(name, password string) *vim25.Client {
	l.Helper()
	client := l.connect()
	l.must(session.NewManager(client).Login(l.ctx, url.UserPassword(name, password)))
	return client
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) eventually(what string, holds func() bool) {
	l.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	l.Fatalf("not in time: %s", what)
}

func (l *lab) folder() *object.Folder {
	l.Helper()
	folder, err := l.finder.DefaultFolder(l.ctx)
	l.must(err)
	return folder
}

func (l *lab) machine(name string) *object.VirtualMachine {
	l.Helper()
	vm, err := l.finder.VirtualMachine(l.ctx, name)
	l.must(err)
	return vm
}

func (l *lab) cloneSpec() types.VirtualMachineCloneSpec {
	l.Helper()
	pool, err := l.finder.DefaultResourcePool(l.ctx)
	if err != nil {
		pool, err = l.finder.ResourcePool(l.ctx, "DC0_C0/Resources")
	}
	l.must(err)
	datastore, err := l.finder.DefaultDatastore(l.ctx)
	l.must(err)
	p, d := pool.Reference(), datastore.Reference()
	return types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Pool: &p, Datastore: &d},
		Config:   &types.VirtualMachineConfigSpec{},
	}
}

// clone runs a clone to its end and returns the fault it came to.
func (l *lab) clone(template, name string, spec types.VirtualMachineCloneSpec) (moRef, types.BaseMethodFault) {
	l.Helper()
	return l.cloneIn(l.machine(template), l.folder(), name, spec)
}

func (l *lab) cloneIn(
	source *object.VirtualMachine, folder *object.Folder, name string, spec types.VirtualMachineCloneSpec,
) (moRef, types.BaseMethodFault) {
	task, err := source.Clone(l.ctx, folder, name, spec)
	if err != nil {
		return moRef{}, faultOf(err)
	}
	result, fault := l.in.hub.wait(task.Reference())
	if fault != nil {
		return moRef{}, fault
	}
	return result.(moRef), nil
}

func faultOf(err error) types.BaseMethodFault {
	var found types.BaseMethodFault
	fault.In(err, func(f types.BaseMethodFault, _ string, _ []types.LocalizableMessage) bool {
		found = f
		return true
	})
	return found
}

func (l *lab) vm(ref moRef) *simulator.VirtualMachine {
	l.Helper()
	vm, ok := l.in.registry().Get(ref).(*simulator.VirtualMachine)
	if !ok {
		l.Fatalf("%s is not there", ref)
	}
	return vm
}

func wants[F types.BaseMethodFault](l *lab, fault types.BaseMethodFault) F {
	l.Helper()
	wanted, ok := fault.(F)
	if !ok {
		l.Fatalf("want %T, got %T", *new(F), fault)
	}
	return wanted
}
