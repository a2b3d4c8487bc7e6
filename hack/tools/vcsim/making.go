package main

import (
	"bytes"
	"path"
	"reflect"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
)

// createMachine creates a machine without looking for its name.
func (in *Instance) createMachine(
	ctx *simulator.Context, p place, name string, config types.VirtualMachineConfigSpec,
) (*simulator.VirtualMachine, types.BaseMethodFault) {
	stored := escape(unescape(name))
	// The simulator cannot make files for an escaped name, and escapes names by itself.
	config.Name = strings.NewReplacer("%", "_", "/", "_", `\`, "_").Replace(unescape(name))
	config.Files = &types.VirtualMachineFileInfo{
		VmPathName: (&object.DatastorePath{Datastore: p.datastore.Name, Path: config.Name}).String(),
	}
	h := hardware{in: in, dc: p.dc, host: p.host, devices: in.defaultDevices()}
	if fault := h.check(config.DeviceChange); fault != nil {
		return nil, fault
	}
	res := p.folder.CreateVMTask(ctx, &types.CreateVM_Task{
		This: p.folder.Self, Config: config, Pool: p.pool, Host: &p.host.Self,
	})
	result, fault := in.hub.wait(res.(*methods.CreateVM_TaskBody).Res.Returnval)
	if fault != nil {
		return nil, fault
	}
	vm, ok := in.registry().Get(result.(moRef)).(*simulator.VirtualMachine)
	if !ok {
		return nil, &types.SystemErrorFault{Reason: "the new machine is gone"}
	}
	if stored != config.Name {
		in.registry().AtomicUpdate(ctx, vm, []types.PropertyChange{
			{Name: "name", Val: stored},
			{Name: "config.name", Val: stored},
			{Name: "summary.config.name", Val: stored},
		})
	}
	return vm, nil
}

// reconfigure applies a specification that may be empty.
func (in *Instance) reconfigure(
	ctx *simulator.Context, vm *simulator.VirtualMachine, spec types.VirtualMachineConfigSpec,
) types.BaseMethodFault {
	if reflect.DeepEqual(spec, types.VirtualMachineConfigSpec{}) {
		return nil
	}
	if fault := in.hardwareOf(vm).check(spec.DeviceChange); fault != nil {
		return fault
	}
	res := vm.ReconfigVMTask(ctx, &types.ReconfigVM_Task{This: vm.Self, Spec: spec})
	if _, fault := in.hub.wait(res.(*methods.ReconfigVM_TaskBody).Res.Returnval); fault != nil {
		return fault
	}
	in.recordCapacities(ctx, vm)
	return nil
}

// recordCapacities writes the sizes of disks into their files, where linked clones look for them.
func (in *Instance) recordCapacities(ctx *simulator.Context, vm *simulator.VirtualMachine) {
	dc := in.datacenterOf(vm)
	if dc == nil {
		return
	}
	files := ctx.Map.FileManager()
	for _, disk := range in.disks(vm) {
		descriptor, file, fault := files.DiskDescriptor(ctx, &dc.Self, disk.File)
		if fault != nil || int64(descriptor.Capacity()) == disk.CapacityBytes || len(descriptor.Extent) == 0 {
			continue
		}
		descriptor.Extent[0].Size = disk.CapacityBytes / sectorSize
		_ = files.SaveDiskDescriptor(ctx, descriptor, file)
	}
}

const sectorSize = 512

func (in *Instance) powerOn(ctx *simulator.Context, vm *simulator.VirtualMachine) types.BaseMethodFault {
	if fault := (&strictMachine{VirtualMachine: vm, in: in}).checkPassthrough(); in.options.Strict && fault != nil {
		return fault
	}
	res := vm.PowerOnVMTask(ctx, &types.PowerOnVM_Task{This: vm.Self}).(*methods.PowerOnVM_TaskBody)
	if fault := res.Fault(); fault != nil {
		return fault.VimFault().(types.BaseMethodFault)
	}
	_, fault := in.hub.wait(res.Res.Returnval)
	return fault
}

// copyDevices copies through XML, as there is no other deep copy of all device types.
func copyDevices(devices []types.BaseVirtualDevice) object.VirtualDeviceList {
	text, err := xml.Marshal(types.ArrayOfVirtualDevice{VirtualDevice: devices})
	if err != nil {
		panic(err) // the simulator has sent the same devices to clients
	}
	var copied types.ArrayOfVirtualDevice
	decoder := xml.NewDecoder(bytes.NewReader(text))
	decoder.TypeFunc = types.TypeFunc()
	if err := decoder.Decode(&copied); err != nil {
		panic(err)
	}
	return copied.VirtualDevice
}

// directoryOf is the directory of a machine's files, as a datastore path.
func directoryOf(vm *simulator.VirtualMachine) string {
	if strings.HasSuffix(vm.Config.Files.VmPathName, ".vmx") {
		datastore, rest, _ := splitDatastorePath(vm.Config.Files.VmPathName)
		return "[" + datastore + "] " + path.Dir(rest)
	}
	return vm.Config.Files.VmPathName
}
