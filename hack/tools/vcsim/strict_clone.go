package main

import (
	"os"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// CloneVMTask clones as a vCenter does where the simulator does not: several clones of one source
// run at once, the whole specification counts, a part of it that cannot be had fails the task and
// leaves nothing behind, and a name is reserved from the start of the task.
func (vm *strictMachine) CloneVMTask(ctx *simulator.Context, req *types.CloneVM_Task) soap.HasFault {
	folder, ok := vm.in.registry().Get(req.Folder).(*simulator.Folder)
	if !ok || !slices.Contains(folder.ChildType, "VirtualMachine") {
		return faulty(&types.InvalidArgument{InvalidProperty: "folder"})
	}
	c := &cloning{in: vm.in, source: vm.VirtualMachine, req: req, account: accountOf(ctx)}
	c.place.folder = folder
	c.release, c.other = vm.in.claimName(folder.Self, req.Name)
	task := vm.in.startTask(ctx, vm.Self, "CloneVM_Task", c.run)
	return &methods.CloneVM_TaskBody{Res: &types.CloneVM_TaskResponse{Returnval: task}}
}

// cloning is one clone under way.
type cloning struct {
	in      *Instance
	source  *simulator.VirtualMachine
	req     *types.CloneVM_Task
	account string
	place   place
	release func()
	other   <-chan struct{}
}

func (c *cloning) run(ctx *simulator.Context) (types.AnyType, types.BaseMethodFault) {
	if c.release == nil {
		return nil, c.in.duplicate(c.place.folder.Self, c.req.Name, c.other)
	}
	defer c.release()
	if c.in.sibling(c.place.folder.Self, c.req.Name) != nil {
		return nil, c.in.duplicate(c.place.folder.Self, c.req.Name, nil)
	}
	if fault := c.findPlace(); fault != nil {
		return nil, fault
	}
	var config types.VirtualMachineConfigSpec
	var fault types.BaseMethodFault
	ctx.WithLock(c.source, func() { config, fault = c.sourceConfig() })
	if fault != nil {
		return nil, fault
	}
	release := c.identify(&config)
	defer release()

	vm, fault := c.in.createMachine(ctx, c.place, c.req.Name, config)
	if fault != nil {
		return nil, fault
	}
	if fault := c.finish(ctx, vm); fault != nil {
		c.in.removeMachine(ctx, vm)
		// Nothing in it was ever anybody's.
		if directory, ok := c.in.datastoreFile(c.in.datacenterOf(c.place.folder), directoryOf(vm)); ok {
			_ = os.RemoveAll(directory)
		}
		return nil, fault
	}
	if c.req.Spec.PowerOn && !c.req.Spec.Template {
		// A machine that does not start stays.
		if fault := c.in.powerOn(ctx, vm); fault != nil {
			return nil, fault
		}
	}
	return vm.Self, nil
}

func (c *cloning) findPlace() types.BaseMethodFault {
	location := c.req.Spec.Location
	p := &c.place
	p.dc = c.in.datacenterOf(p.folder)
	switch {
	case location.Pool != nil:
		p.pool = *location.Pool
	case c.source.Config.Template || c.source.ResourcePool == nil:
		return &types.InvalidArgument{InvalidProperty: "spec.location.pool"}
	default:
		p.pool = *c.source.ResourcePool
	}
	ref := first(c.source.Datastore)
	if location.Datastore != nil {
		ref = location.Datastore
	}
	if ref == nil {
		return &types.InvalidArgument{InvalidProperty: "spec.location.datastore"}
	}
	datastore, ok := c.in.registry().Get(*ref).(*simulator.Datastore)
	if !ok || p.dc == nil || c.in.datastoreNamed(datastore.Name, p.dc.Datastore) != datastore {
		return &types.InvalidArgument{InvalidProperty: "spec.location.datastore"}
	}
	p.datastore = datastore
	wanted := location.Host
	if wanted == nil && location.Pool == nil {
		wanted = c.source.Runtime.Host
	}
	host, fault := c.in.placeHost(p.pool, wanted, datastore)
	p.host = host
	return fault
}

// sourceConfig is the hardware and configuration of the source; the source's lock is held.
func (c *cloning) sourceConfig() (types.VirtualMachineConfigSpec, types.BaseMethodFault) {
	from := c.source.Config
	spec := types.VirtualMachineConfigSpec{
		GuestId:             from.GuestId,
		Version:             from.Version,
		Firmware:            from.Firmware,
		Annotation:          from.Annotation,
		NumCPUs:             from.Hardware.NumCPU,
		NumCoresPerSocket:   from.Hardware.NumCoresPerSocket,
		MemoryMB:            int64(from.Hardware.MemoryMB),
		CpuHotAddEnabled:    from.CpuHotAddEnabled,
		CpuHotRemoveEnabled: from.CpuHotRemoveEnabled,
		MemoryHotAddEnabled: from.MemoryHotAddEnabled,
	}
	flags := from.Flags
	spec.Flags = &flags
	if from.BootOptions != nil {
		options := *from.BootOptions
		spec.BootOptions = &options
	}
	for _, option := range from.ExtraConfig {
		if value := *option.GetOptionValue(); value.Key != "govcsim" {
			spec.ExtraConfig = append(spec.ExtraConfig, &value)
		}
	}
	changes, fault := c.devices()
	spec.DeviceChange = changes
	return spec, fault
}

// devices are those of the source, as additions to a machine that has the default ones.
func (c *cloning) devices() ([]types.BaseVirtualDeviceConfigSpec, types.BaseMethodFault) {
	defaults := c.in.defaultDevices()
	devices := copyDevices(c.source.Config.Hardware.Device)
	if fault := c.checkSnapshot(); fault != nil {
		return nil, fault
	}
	var changes []types.BaseVirtualDeviceConfigSpec
	for _, device := range devices {
		if defaults.Find(devices.Name(device)) != nil {
			continue
		}
		spec := &types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: device,
		}
		switch x := device.(type) {
		case *types.VirtualDisk:
			spec.FileOperation = types.VirtualDeviceConfigSpecFileOperationCreate
			if fault := c.newDisk(x); fault != nil {
				return nil, fault
			}
		case types.BaseVirtualEthernetCard:
			card := x.GetVirtualEthernetCard()
			if card.AddressType != string(types.VirtualEthernetCardMacTypeManual) {
				card.MacAddress = "" // each machine gets its own
			}
		}
		changes = append(changes, spec)
	}
	return changes, nil
}

// linked says whether a disk becomes the child of the source's.
func (c *cloning) linked(disk int32) bool {
	how := c.req.Spec.Location.DiskMoveType
	for _, locator := range c.req.Spec.Location.Disk {
		if locator.DiskId == disk && locator.DiskMoveType != "" {
			how = locator.DiskMoveType
		}
	}
	return how == string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
}

// checkSnapshot refuses a snapshot of another machine, and linked clones of something that changes.
func (c *cloning) checkSnapshot() types.BaseMethodFault {
	wanted := c.req.Spec.Snapshot
	if wanted != nil {
		snapshot, ok := c.in.registry().Get(*wanted).(*simulator.VirtualMachineSnapshot)
		if !ok || snapshot.Vm != c.source.Self {
			return &types.InvalidArgument{InvalidProperty: "spec.snapshot"}
		}
		return nil
	}
	for _, device := range c.source.Config.Hardware.Device {
		if disk, ok := device.(*types.VirtualDisk); ok && c.linked(disk.Key) {
			return &types.InvalidArgument{InvalidProperty: "spec.location.diskMoveType"}
		}
	}
	return nil
}

// newDisk turns a disk of the source into one of the clone.
func (c *cloning) newDisk(disk *types.VirtualDisk) types.BaseMethodFault {
	from, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	if !ok {
		return &types.NotSupported{}
	}
	backing := &types.VirtualDiskFlatVer2BackingInfo{
		DiskMode:        from.DiskMode,
		ThinProvisioned: from.ThinProvisioned,
		EagerlyScrub:    from.EagerlyScrub,
		WriteThrough:    from.WriteThrough,
	}
	if c.linked(disk.Key) {
		backing.Parent = from
	}
	for _, locator := range c.req.Spec.Location.Disk {
		if locator.DiskId != disk.Key {
			continue
		}
		datastore, ok := c.in.registry().Get(locator.Datastore).(*simulator.Datastore)
		if !ok {
			return &types.InvalidArgument{InvalidProperty: "spec.location.disk.datastore"}
		}
		if fault := usable(c.place.host, datastore); fault != nil {
			return fault
		}
		backing.FileName = "[" + datastore.Name + "]"
		if wanted, ok := locator.DiskBackingInfo.(*types.VirtualDiskFlatVer2BackingInfo); ok {
			backing.ThinProvisioned, backing.EagerlyScrub = wanted.ThinProvisioned, wanted.EagerlyScrub
		}
	}
	disk.Backing = backing
	disk.VDiskId = nil
	return nil
}

// identify puts the identity and the extra configuration of the request in place before anybody can
// see the machine.
func (c *cloning) identify(config *types.VirtualMachineConfigSpec) (release func()) {
	var wanted types.VirtualMachineConfigSpec
	if c.req.Spec.Config != nil {
		wanted = *c.req.Spec.Config
	}
	seed := c.place.folder.Self.Value + "/" + c.req.Name
	config.InstanceUuid, release = c.in.claimInstanceUUID(wanted.InstanceUuid, c.account, seed)
	config.Uuid = wanted.Uuid
	if config.Uuid == "" {
		config.Uuid = c.in.derivedUUID("bios", config.InstanceUuid)
	}
	config.ExtraConfig = mergeOptions(config.ExtraConfig, wanted.ExtraConfig)
	return release
}

// mergeOptions overlays options; an empty value takes a key away.
func mergeOptions(base, over []types.BaseOptionValue) []types.BaseOptionValue {
	merged := slices.DeleteFunc(slices.Clone(base), func(option types.BaseOptionValue) bool {
		return slices.ContainsFunc(over, func(other types.BaseOptionValue) bool {
			return other.GetOptionValue().Key == option.GetOptionValue().Key
		})
	})
	for _, option := range over {
		if text, ok := option.GetOptionValue().Value.(string); !ok || text != "" {
			merged = append(merged, option)
		}
	}
	return merged
}

// finish applies the rest of the specification to the new machine.
func (c *cloning) finish(ctx *simulator.Context, vm *simulator.VirtualMachine) types.BaseMethodFault {
	var spec types.VirtualMachineConfigSpec
	if c.req.Spec.Config != nil {
		spec = *c.req.Spec.Config
	}
	spec.Name, spec.Uuid, spec.InstanceUuid, spec.Files, spec.ExtraConfig = "", "", "", nil, nil
	spec.DeviceChange = append(slices.Clone(c.req.Spec.Location.DeviceChange), spec.DeviceChange...)
	ctx.WithLock(vm, func() { keepFiles(vm, spec.DeviceChange) })
	if fault := c.in.checkSpec(shapeOf(vm), &spec); fault != nil {
		return fault
	}
	if fault := c.in.checkProfiles("spec.location.profile", c.req.Spec.Location.Profile); fault != nil {
		return fault
	}
	if fault := c.in.reconfigure(ctx, vm, spec); fault != nil {
		return fault
	}
	if fault := c.givePolicies(vm, spec); fault != nil {
		return fault
	}
	if custom := c.req.Spec.Customization; custom != nil && !c.req.Spec.Template {
		res := vm.CustomizeVMTask(ctx, &types.CustomizeVM_Task{This: vm.Self, Spec: *custom})
		if _, fault := c.in.hub.wait(res.(*methods.CustomizeVM_TaskBody).Res.Returnval); fault != nil {
			return fault
		}
	}
	if c.req.Spec.Template {
		ctx.WithLock(vm, func() { vm.MarkAsTemplate(&types.MarkAsTemplate{This: vm.Self}) })
		c.in.hub.poke(vm.Self)
	}
	return nil
}

// givePolicies notes which storage policies the machine and its disks got.
func (c *cloning) givePolicies(
	vm *simulator.VirtualMachine, spec types.VirtualMachineConfigSpec,
) types.BaseMethodFault {
	c.in.policies.give(vm.Self.Value, "home", c.req.Spec.Location.Profile)
	source := object.VirtualDeviceList(c.source.Config.Hardware.Device)
	for _, locator := range c.req.Spec.Location.Disk {
		if fault := c.in.checkProfiles("spec.location.disk.profile", locator.Profile); fault != nil {
			return fault
		}
		disk, ok := source.FindByKey(locator.DiskId).(*types.VirtualDisk)
		if !ok {
			return &types.InvalidArgument{InvalidProperty: "spec.location.disk.diskId"}
		}
		c.in.policies.give(vm.Self.Value, labelOf(disk), locator.Profile)
	}
	for _, change := range spec.DeviceChange {
		added := change.GetVirtualDeviceConfigSpec()
		if disk, ok := added.Device.(*types.VirtualDisk); ok {
			c.in.policies.give(vm.Self.Value, labelOf(disk), added.Profile)
		}
	}
	return nil
}

func labelOf(disk *types.VirtualDisk) string {
	if disk.DeviceInfo == nil {
		return ""
	}
	return disk.DeviceInfo.GetDescription().Label
}

// keepFiles lets edits of disks mean the files of the clone: a request can only name those of the
// source, which the clone never gets.
func keepFiles(vm *simulator.VirtualMachine, changes []types.BaseVirtualDeviceConfigSpec) {
	own := object.VirtualDeviceList(vm.Config.Hardware.Device)
	for _, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		disk, ok := spec.Device.(*types.VirtualDisk)
		if !ok || spec.Operation != types.VirtualDeviceConfigSpecOperationEdit {
			continue
		}
		if mine, ok := own.FindByKey(disk.Key).(*types.VirtualDisk); ok {
			disk.Backing = mine.Backing
		}
	}
}
