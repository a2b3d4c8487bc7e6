package main

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func TestPropertyReadsNeedASession(t *testing.T) {
	l := newLab(t)
	client := l.connect()
	var folder mo.Folder
	err := property.DefaultCollector(client).RetrieveOne(
		l.ctx, client.ServiceContent.RootFolder, []string{"name"}, &folder)
	wants[*types.NotAuthenticated](l, faultOf(err))

	var service mo.ServiceInstance
	l.must(property.DefaultCollector(client).RetrieveOne(
		l.ctx, vim25.ServiceInstance, []string{"content"}, &service))
}

func TestWrongPasswordIsRefused(t *testing.T) {
	l := newLab(t)
	client := l.connect()
	err := session.NewManager(client).Login(l.ctx, url.UserPassword("admin", "wrong"))
	wants[*types.InvalidLogin](l, faultOf(err))
}

func TestCloneTakesTheWholeSpecification(t *testing.T) {
	l := newLab(t)
	spec := l.cloneSpec()
	spec.PowerOn = true
	spec.Config = &types.VirtualMachineConfigSpec{
		Uuid: "11111111-2222-3333-4444-555555555555", InstanceUuid: "11111111-2222-3333-4444-555555555555",
		NumCPUs: 4, NumCoresPerSocket: types.NewInt32(2), MemoryMB: 2048, Annotation: "ours",
		ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "guestinfo.a", Value: "b"}},
	}
	ref, fault := l.clone("ubuntu", "web", spec)
	if fault != nil {
		t.Fatalf("%#v", fault)
	}
	vm := l.vm(ref)
	l.eventually("an address", func() bool { return l.in.describe(vm).GuestAddress != "" })
	m := l.in.describe(vm)
	if m.UUID != spec.Config.Uuid || m.InstanceUUID != spec.Config.InstanceUuid ||
		m.CPUs != 4 || m.MemoryMB != 2048 || m.Annotation != "ours" || m.Firmware != "efi" ||
		m.ExtraConfig["guestinfo.a"] != "b" || m.PowerState != "poweredOn" || !m.ToolsRunning ||
		m.GuestHostName != "web" || *vm.Config.Hardware.NumCoresPerSocket != 2 {
		t.Fatalf("%+v", m)
	}
	template := l.in.describe(l.vm(l.machine("ubuntu").Reference()))
	if m.Cards[0].MAC == template.Cards[0].MAC {
		t.Error("the clone has the MAC of its template")
	}
}

func TestCloneWithALargerDiskLeavesTheSourceItsFile(t *testing.T) {
	l := newLab(t)
	source := l.vm(l.machine("ubuntu").Reference())
	before := l.in.disks(source)[0]
	disk := copyDevices(source.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil))[0].(*types.VirtualDisk)
	disk.CapacityInKB, disk.CapacityInBytes = disk.CapacityInKB*2, disk.CapacityInKB*2*1024
	spec := l.cloneSpec()
	spec.Config = &types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
		&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: disk},
	}}
	ref, fault := l.clone("ubuntu", "web", spec)
	if fault != nil {
		t.Fatalf("%#v", fault)
	}
	grown := l.in.disks(l.vm(ref))[0]
	if grown.File == before.File || grown.CapacityBytes != 2*before.CapacityBytes {
		t.Errorf("the source has %+v, the clone %+v", before, grown)
	}
	next, fault := l.clone("ubuntu", "later", l.cloneSpec())
	if fault != nil {
		t.Fatalf("%#v", fault)
	}
	if later := l.in.disks(l.vm(next))[0]; later.CapacityBytes != before.CapacityBytes {
		t.Errorf("the source has %+v, a later clone %+v", before, later)
	}
}

func TestClonesThatCannotBeFailCleanly(t *testing.T) {
	l := newLab(t)
	card := func(backing types.BaseVirtualDeviceBackingInfo) []types.BaseVirtualDeviceConfigSpec {
		device := &types.VirtualVmxnet3{}
		device.Key, device.Backing = -1, backing
		return []types.BaseVirtualDeviceConfigSpec{&types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: device,
		}}
	}
	unknown := func(kind string) *moRef { return &moRef{Type: kind, Value: strings.ToLower(kind) + "-7"} }
	cases := map[string]struct {
		change func(*types.VirtualMachineCloneSpec)
		fault  types.BaseMethodFault
	}{
		"no pool":           {func(s *types.VirtualMachineCloneSpec) { s.Location.Pool = nil }, &types.InvalidArgument{}},
		"unknown pool":      {func(s *types.VirtualMachineCloneSpec) { s.Location.Pool = unknown("ResourcePool") }, &types.ManagedObjectNotFound{}},
		"unknown datastore": {func(s *types.VirtualMachineCloneSpec) { s.Location.Datastore = unknown("Datastore") }, &types.ManagedObjectNotFound{}},
		"unknown host":      {func(s *types.VirtualMachineCloneSpec) { s.Location.Host = unknown("HostSystem") }, &types.ManagedObjectNotFound{}},
		"wrong type": {func(s *types.VirtualMachineCloneSpec) {
			folder := l.folder().Reference()
			s.Location.Datastore = &folder
		}, &types.InvalidArgument{}},
		"unknown network": {func(s *types.VirtualMachineCloneSpec) {
			s.Config.DeviceChange = card(&types.VirtualEthernetCardNetworkBackingInfo{
				VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: "nowhere"},
			})
		}, &types.InvalidDeviceSpec{}},
		"unknown port group": {func(s *types.VirtualMachineCloneSpec) {
			s.Location.DeviceChange = card(&types.VirtualEthernetCardDistributedVirtualPortBackingInfo{
				Port: types.DistributedVirtualSwitchPortConnection{PortgroupKey: "dvportgroup-7"},
			})
		}, &types.InvalidArgument{}},
		"bad guest": {func(s *types.VirtualMachineCloneSpec) { s.Config.GuestId = "amiga" }, &types.InvalidArgument{}},
		"linked without a snapshot": {func(s *types.VirtualMachineCloneSpec) {
			s.Location.DiskMoveType = "createNewChildDiskBacking"
		}, &types.InvalidArgument{}},
		"snapshot of another": {func(s *types.VirtualMachineCloneSpec) {
			s.Snapshot = l.vm(l.machine("debian").Reference()).Snapshot.CurrentSnapshot
		}, &types.InvalidArgument{}},
		"bad disk change": {func(s *types.VirtualMachineCloneSpec) {
			disk := &types.VirtualDisk{CapacityInKB: 1}
			disk.Key, disk.ControllerKey = firstDisk, firstController
			disk.Backing = &types.VirtualDiskFlatVer2BackingInfo{}
			s.Config.DeviceChange = []types.BaseVirtualDeviceConfigSpec{&types.VirtualDeviceConfigSpec{
				Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: disk,
			}}
		}, &types.InvalidDeviceOperation{}},
	}
	before := l.in.digest()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			spec := l.cloneSpec()
			c.change(&spec)
			_, fault := l.clone("ubuntu", "web", spec)
			if got, want := fmt.Sprintf("%T", fault), fmt.Sprintf("%T", c.fault); got != want {
				t.Errorf("want %s, got %s", want, got)
			}
		})
	}
	if after := l.in.digest(); after.Digest != before.Digest {
		t.Errorf("something was left behind:\n%v\n%v", before, after)
	}
	if _, fault := l.clone("ubuntu", "web", l.cloneSpec()); fault != nil {
		t.Errorf("the template does not work any more: %#v", fault)
	}
}

func TestOneOfTwoClonesOfANameWins(t *testing.T) {
	l := newLab(t)
	source, folder, spec := l.machine("ubuntu"), l.folder(), l.cloneSpec()
	l.in.delays.set("CloneVM_Task", 50*time.Millisecond, true)
	defer l.in.delays.reset()
	faults := make([]types.BaseMethodFault, 8)
	var group sync.WaitGroup
	for i := range faults {
		group.Go(func() { _, faults[i] = l.cloneIn(source, folder, "web", spec) })
	}
	group.Wait()
	won := 0
	for _, fault := range faults {
		if fault == nil {
			won++
			continue
		}
		if duplicate := wants[*types.DuplicateName](l, fault); duplicate.Object.Type != "VirtualMachine" {
			t.Errorf("%+v does not name the machine", duplicate)
		}
	}
	if won != 1 {
		t.Errorf("%d clones won", won)
	}
}

func TestClonesOfTwoTemplatesIntoOneFolder(t *testing.T) {
	l := newLab(t)
	sources := []*object.VirtualMachine{l.machine("ubuntu"), l.machine("debian")}
	folder, spec := l.folder(), l.cloneSpec()
	spec.PowerOn = true
	search := object.NewSearchIndex(l.client)
	var group sync.WaitGroup
	for i := range 120 {
		group.Go(func() {
			if _, fault := l.cloneIn(sources[i%2], folder, fmt.Sprintf("vm-%d", i), spec); fault != nil {
				t.Errorf("%#v", fault)
			}
		})
		group.Go(func() {
			if _, err := search.FindChild(l.ctx, folder, fmt.Sprintf("vm-%d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := len(l.in.machines()); n != 122 {
		t.Errorf("%d machines", n)
	}
}

func TestTakenInstanceUUIDIsReplaced(t *testing.T) {
	l := newLab(t)
	spec := l.cloneSpec()
	spec.Config.InstanceUuid = "11111111-2222-3333-4444-555555555555"
	seen := map[string]bool{}
	for _, name := range []string{"a", "b"} {
		ref, fault := l.clone("ubuntu", name, spec)
		if fault != nil {
			t.Fatalf("%#v", fault)
		}
		seen[l.vm(ref).Config.InstanceUuid] = true
	}
	if len(seen) != 2 || !seen[spec.Config.InstanceUuid] {
		t.Error(seen)
	}
}

func TestClusterWithoutDRSWantsAHost(t *testing.T) {
	for _, mode := range []string{"off", "manual"} {
		t.Run(mode, func(t *testing.T) {
			l := newLab(t, func(o *Options) { o.DRS, o.Model.Host = mode, 0 })
			spec := l.cloneSpec()
			_, fault := l.clone("ubuntu", "a", spec)
			wants[*types.InvalidArgument](l, fault)
			hosts, err := l.finder.HostSystemList(l.ctx, "*/DC0_C0_H1")
			l.must(err)
			host := hosts[0].Reference()
			spec.Location.Host = &host
			ref, fault := l.clone("ubuntu", "a", spec)
			if fault != nil || *l.vm(ref).Runtime.Host != host {
				t.Errorf("%#v", fault)
			}
		})
	}
}

func TestDisksWithParentsDoNotGrow(t *testing.T) {
	l := newLab(t)
	spec := l.cloneSpec()
	spec.Location.DiskMoveType = "createNewChildDiskBacking"
	spec.Snapshot = l.vm(l.machine("ubuntu").Reference()).Snapshot.CurrentSnapshot
	linked, fault := l.clone("ubuntu", "linked", spec)
	if fault != nil {
		t.Fatalf("%#v", fault)
	}
	full, fault := l.clone("ubuntu", "full", l.cloneSpec())
	if fault != nil {
		t.Fatalf("%#v", fault)
	}
	if parent := l.in.describe(l.vm(linked)).Disks[0].Parent; parent == "" {
		t.Fatal("the linked clone has no parent")
	}
	grow := func(ref moRef) types.BaseMethodFault {
		disk := *l.vm(ref).Config.Hardware.Device[len(l.vm(ref).Config.Hardware.Device)-1].(*types.VirtualDisk)
		disk.CapacityInKB *= 2
		task, err := object.NewVirtualMachine(l.client, ref).Reconfigure(l.ctx, types.VirtualMachineConfigSpec{
			DeviceChange: []types.BaseVirtualDeviceConfigSpec{&types.VirtualDeviceConfigSpec{
				Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: &disk,
			}},
		})
		l.must(err)
		_, fault := l.in.hub.wait(task.Reference())
		return fault
	}
	order(l.vm(linked))
	order(l.vm(full))
	wants[*types.InvalidDeviceOperation](l, grow(linked))
	if fault := grow(full); fault != nil {
		t.Errorf("%#v", fault)
	}
	if got := l.in.describe(l.vm(full)).Disks[0].CapacityBytes; got != 4<<30 {
		t.Errorf("the disk has %d bytes", got)
	}
}

// order puts the disk of a machine last, where the test looks for it.
func order(vm *simulator.VirtualMachine) {
	devices := vm.Config.Hardware.Device
	for i, device := range devices {
		if _, ok := device.(*types.VirtualDisk); ok {
			devices[i], devices[len(devices)-1] = devices[len(devices)-1], devices[i]
			return
		}
	}
}

func TestDestroyTakesAttachedDisksAlong(t *testing.T) {
	l := newLab(t)
	before := l.in.digest()
	ref, fault := l.clone("ubuntu", "web", l.cloneSpec())
	if fault != nil {
		t.Fatalf("%#v", fault)
	}
	dc, err := l.finder.DefaultDatacenter(l.ctx)
	l.must(err)
	disks := object.NewVirtualDiskManager(l.client)
	task, err := disks.CreateVirtualDisk(l.ctx, "[LocalDS_0] data.vmdk", dc, &types.FileBackedVirtualDiskSpec{CapacityKb: 1024})
	l.must(err)
	l.must(task.Wait(l.ctx))
	vm := object.NewVirtualMachine(l.client, ref)
	devices, err := vm.Device(l.ctx)
	l.must(err)
	controller, err := devices.FindDiskController("")
	l.must(err)
	disk := devices.CreateDisk(controller, l.vm(ref).Datastore[0], "[LocalDS_0] data.vmdk")
	l.must(vm.AddDevice(l.ctx, disk))
	if n := len(l.in.describe(l.vm(ref)).Disks); n != 2 {
		t.Fatalf("%d disks", n)
	}
	task, err = vm.Destroy(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	if after := l.in.digest(); after.Digest != before.Digest {
		t.Errorf("%v\n%v", before.Files, after.Files)
	}
}

func TestPoweredOnMachinesAreNotDestroyed(t *testing.T) {
	l := newLab(t)
	spec := l.cloneSpec()
	spec.PowerOn = true
	ref, fault := l.clone("ubuntu", "web", spec)
	if fault != nil {
		t.Fatalf("%#v", fault)
	}
	task, err := object.NewVirtualMachine(l.client, ref).Destroy(l.ctx)
	l.must(err)
	_, fault = l.in.hub.wait(task.Reference())
	wants[*types.InvalidPowerState](l, fault)
	l.vm(ref)
}

func TestSecondTaskOnABusyMachine(t *testing.T) {
	l := newLab(t)
	ref, fault := l.clone("ubuntu", "web", l.cloneSpec())
	if fault != nil {
		t.Fatalf("%#v", fault)
	}
	l.in.delays.set("PowerOnVM_Task", 300*time.Millisecond, true)
	defer l.in.delays.reset()
	vm := object.NewVirtualMachine(l.client, ref)
	task, err := vm.PowerOn(l.ctx)
	l.must(err)
	_, err = vm.Reconfigure(l.ctx, types.VirtualMachineConfigSpec{Annotation: "x"})
	if busy := wants[*types.TaskInProgress](l, faultOf(err)); busy.Task != task.Reference() {
		t.Errorf("%+v", busy)
	}
	l.must(task.Wait(l.ctx))
	task, err = vm.Reconfigure(l.ctx, types.VirtualMachineConfigSpec{Annotation: "x"})
	l.must(err)
	l.must(task.Wait(l.ctx))
}

func TestReconfigureOnAnOlderLookIsRefused(t *testing.T) {
	l := newLab(t)
	ref := l.made("web")
	seen := l.vm(ref).Config.ChangeVersion
	vm := object.NewVirtualMachine(l.client, ref)
	reconfigure := func(note string) types.BaseMethodFault {
		task, err := vm.Reconfigure(l.ctx, types.VirtualMachineConfigSpec{Annotation: note, ChangeVersion: seen})
		l.must(err)
		_, fault := l.in.hub.wait(task.Reference())
		return fault
	}
	if fault := reconfigure("first"); fault != nil {
		t.Fatalf("%#v", fault)
	}
	wants[*types.ConcurrentAccess](l, reconfigure("second"))
	if note := l.vm(ref).Config.Annotation; note != "first" {
		t.Errorf("annotation is %q", note)
	}
}

func TestHiddenMachine(t *testing.T) {
	l := newLab(t)
	l.in.accounts.set("tenant", "secret")
	spec := l.cloneSpec()
	spec.Config.InstanceUuid = "11111111-2222-3333-4444-555555555555"
	ref, fault := l.clone("ubuntu", "web", spec)
	if fault != nil {
		t.Fatalf("%#v", fault)
	}
	client := l.login("tenant", "secret")
	search := object.NewSearchIndex(client)
	found := func() int {
		hits, err := search.FindAllByUuid(l.ctx, nil, spec.Config.InstanceUuid, true, types.NewBool(true))
		l.must(err)
		child, err := search.FindByInventoryPath(l.ctx, "/DC0/vm/web")
		l.must(err)
		if (child != nil) != (len(hits) > 0) {
			t.Error("the look-ups disagree")
		}
		return len(hits)
	}
	if found() != 1 {
		t.Fatal("not found before it is hidden")
	}
	watch := newWatch(l, client, ref)
	watch.expect("enter")

	l.must(l.in.access.set(Permission{Account: "tenant", Entity: "web"}))
	if found() != 0 {
		t.Error("found though hidden")
	}
	watch.expect("leave")
	_, err := object.NewVirtualMachine(client, ref).PowerOn(l.ctx)
	if no := wants[*types.NoPermission](l, faultOf(err)); no.PrivilegeId != "System.View" {
		t.Error(no.PrivilegeId)
	}
	if unresolved := watch.add(ref); len(unresolved) != 1 {
		t.Error("a list view takes a hidden machine")
	}
	l.must(l.in.access.clear("tenant", ""))
	watch.expect("enter")
	if found() != 1 {
		t.Error("not found after it is shown again")
	}
}

func TestMissingPrivilege(t *testing.T) {
	l := newLab(t)
	l.must(l.in.access.set(Permission{
		Account: "admin", Entity: "/DC0/vm", Without: []string{"VirtualMachine.Inventory.CreateFromExisting"},
	}))
	_, fault := l.clone("ubuntu", "web", l.cloneSpec())
	no := wants[*types.NoPermission](l, fault)
	if no.PrivilegeId != "VirtualMachine.Inventory.CreateFromExisting" || *no.Object != l.folder().Reference() {
		t.Errorf("%+v", no)
	}
	manager := object.NewAuthorizationManager(l.client)
	asked := []string{"VirtualMachine.Inventory.CreateFromExisting", "VirtualMachine.Inventory.Delete", "No.Such"}
	answer, err := manager.HasPrivilegeOnEntity(l.ctx, l.folder().Reference(), session.NewManager(l.client).Reference().Value, asked)
	l.must(err)
	if answer[0] || !answer[1] || answer[2] {
		t.Errorf("%v", answer)
	}
	if err := l.in.access.set(Permission{Account: "admin", Privileges: []string{"No.Such"}}); err == nil {
		t.Error("an invented privilege is accepted")
	}
}

func TestFaultRules(t *testing.T) {
	l := newLab(t)
	rule, err := l.in.rules.add(FaultRule{
		Method: "CloneVM_Task", Object: "web", Stage: stageTask, Skip: 1, Count: 1,
		Fault: FaultSpec{Type: "InvalidArgument", Fields: []byte(`{"invalidProperty":"p"}`)},
	})
	l.must(err)
	if _, fault := l.clone("ubuntu", "other", l.cloneSpec()); fault != nil {
		t.Errorf("the rule is for another name: %#v", fault)
	}
	l.must(errorIf(l.clone("ubuntu", "web", l.cloneSpec()))) // skipped
	_, fault := l.clone("ubuntu", "web", l.cloneSpec())
	if got := wants[*types.InvalidArgument](l, fault); got.InvalidProperty != "p" {
		t.Errorf("%+v", got)
	}
	_, fault = l.clone("ubuntu", "web", l.cloneSpec())
	wants[*types.DuplicateName](l, fault)
	if hits := l.in.rules.list()[0]; hits.ID != rule.ID || hits.Hits != 1 || hits.Seen != 2 {
		t.Errorf("%+v", hits)
	}
	_, err = l.in.rules.add(FaultRule{Method: "*", Type: "SearchIndex", Fault: FaultSpec{Type: "NoPermission"}})
	l.must(err)
	_, err = object.NewSearchIndex(l.client).FindByInventoryPath(l.ctx, "/DC0")
	wants[*types.NoPermission](l, faultOf(err))
	l.in.rules.remove("")
	_, err = object.NewSearchIndex(l.client).FindByInventoryPath(l.ctx, "/DC0")
	l.must(err)
	for _, bad := range []FaultRule{
		{Method: "X", Fault: FaultSpec{Type: "NoSuchFault"}},
		{Method: "X", Fault: FaultSpec{Type: "VirtualMachineConfigSpec"}},
		{Method: "X", Fault: FaultSpec{Type: "InvalidArgument", Fields: []byte(`{"nope":1}`)}},
		{Method: "Login", Stage: stageTask, Fault: FaultSpec{Type: "InvalidArgument"}},
	} {
		if _, err := l.in.rules.add(bad); err == nil {
			t.Errorf("accepted: %+v", bad)
		}
	}
}

func errorIf(_ moRef, fault types.BaseMethodFault) error {
	if fault != nil {
		return fmt.Errorf("%T", fault)
	}
	return nil
}

func TestBadDescriptorsAreReported(t *testing.T) {
	l := newLab(t)
	spec := l.cloneSpec()
	for name, text := range map[string]string{
		"no XML":      "hello",
		"no system":   `<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1"/>`,
		"no hardware": `<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1"><VirtualSystem/></Envelope>`,
	} {
		res, err := methods.CreateImportSpec(l.ctx, l.client, &types.CreateImportSpec{
			This: *l.client.ServiceContent.OvfManager, OvfDescriptor: text,
			ResourcePool: *spec.Location.Pool, Datastore: *spec.Location.Datastore,
			Cisp: &types.OvfCreateImportSpecParams{EntityName: "x"},
		})
		if err != nil || len(res.Returnval.Error) != 1 {
			t.Errorf("%s: %v %+v", name, err, res)
		}
	}
}

func TestVCentersDiffer(t *testing.T) {
	one, two := newLab(t), newLab(t)
	a, b := one.in.listMachines(), two.in.listMachines()
	seen := map[string]bool{}
	for _, m := range append(a, b...) {
		for _, id := range []string{m.MoRef, m.UUID, "i" + m.InstanceUUID} {
			if seen[id] {
				t.Errorf("%s is in both", id)
			}
			seen[id] = true
		}
	}
	if one.client.ServiceContent.About.InstanceUuid == two.client.ServiceContent.About.InstanceUuid {
		t.Error("the instance UUIDs are equal")
	}
}

func TestMovesBetweenFolders(t *testing.T) {
	l := newLab(t)
	ref := l.made("web")
	inner, err := l.folder().CreateFolder(l.ctx, "inner")
	l.must(err)
	move := func(to *object.Folder) types.BaseMethodFault {
		task, err := to.MoveInto(l.ctx, []moRef{ref})
		l.must(err)
		_, fault := l.in.hub.wait(task.Reference())
		return fault
	}
	if fault := move(inner); fault != nil {
		t.Fatalf("%#v", fault)
	}
	if path := l.in.pathOf(l.vm(ref)); path != "/DC0/vm/inner/web" {
		t.Error(path)
	}
	l.made("web")
	wants[*types.DuplicateName](l, move(l.folder()))
	task, err := inner.Destroy(l.ctx)
	l.must(err)
	l.must(task.Wait(l.ctx))
	if l.in.registry().Get(ref) != nil || l.in.registry().Get(inner.Reference()) != nil {
		t.Error("something of the folder is left")
	}
}

func TestFinishedTasksAreForgotten(t *testing.T) {
	l := newLab(t, func(o *Options) { o.TaskRetention = 50 * time.Millisecond })
	task, err := l.machine("ubuntu").Clone(l.ctx, l.folder(), "web", l.cloneSpec())
	l.must(err)
	l.eventually("a task that is gone", func() bool {
		return l.in.registry().Get(task.Reference()) == nil
	})
	if len(l.in.machines()) != 3 {
		t.Error("the machine is gone too")
	}
}
