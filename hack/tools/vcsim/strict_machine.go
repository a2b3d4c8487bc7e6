package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// strictMachine stands in front of a virtual machine.
type strictMachine struct {
	*simulator.VirtualMachine

	in *Instance
}

// ReconfigVMTask refuses what was planned on an older configuration and checks the devices first, and
// gives a new instance UUID when the wanted one is another machine's.
func (vm *strictMachine) ReconfigVMTask(ctx *simulator.Context, req *types.ReconfigVM_Task) soap.HasFault {
	if seen := req.Spec.ChangeVersion; seen != "" && seen != vm.Config.ChangeVersion {
		return vm.in.failTask(vm.Self, &types.ConcurrentAccess{}).ReconfigVMTask(ctx, req)
	}
	if fault := vm.in.hardwareOf(vm.VirtualMachine).check(req.Spec.DeviceChange); fault != nil {
		return vm.in.failTask(vm.Self, fault).ReconfigVMTask(ctx, req)
	}
	now := shapeOf(vm.VirtualMachine)
	now.on = now.on && accountOf(ctx) != "" // the control interface may change what it likes
	if fault := vm.in.checkSpec(now, &req.Spec); fault != nil {
		return vm.in.failTask(vm.Self, fault).ReconfigVMTask(ctx, req)
	}
	if name := req.Spec.Name; name != "" && vm.Parent != nil {
		if other := vm.in.sibling(*vm.Parent, name); other != nil && *other != vm.Self {
			fault := vm.in.duplicate(*vm.Parent, name, nil)
			return vm.in.failTask(vm.Self, fault).ReconfigVMTask(ctx, req)
		}
	}
	if id := req.Spec.InstanceUuid; id != "" && !strings.EqualFold(id, vm.Config.InstanceUuid) {
		claimed, release := vm.in.claimInstanceUUID(id, accountOf(ctx), vm.Self.Value)
		req.Spec.InstanceUuid = claimed
		defer release()
	}
	res := vm.VirtualMachine.ReconfigVMTask(ctx, req)
	if body, ok := res.(*methods.ReconfigVM_TaskBody); ok && body.Res != nil && len(req.Spec.DeviceChange) > 0 {
		c := clone(ctx)
		go func() {
			if _, fault := vm.in.hub.wait(body.Res.Returnval); fault == nil {
				vm.in.recordCapacities(c, vm.VirtualMachine)
			}
		}()
	}
	return res
}

// DestroyTask removes the machine with its files and the disks attached to it, wherever they are;
// first-class disks that are to be kept stay.
func (vm *strictMachine) DestroyTask(ctx *simulator.Context, _ *types.Destroy_Task) soap.HasFault {
	task := vm.in.startLockedTask(ctx, vm.VirtualMachine, "Destroy_Task",
		func(c *simulator.Context) (types.AnyType, types.BaseMethodFault) {
			return nil, vm.in.removeMachine(c, vm.VirtualMachine)
		})
	return &methods.Destroy_TaskBody{Res: &types.Destroy_TaskResponse{Returnval: task}}
}

// removeMachine takes a machine that is off out of the inventory and deletes what belongs to it.
func (in *Instance) removeMachine(ctx *simulator.Context, vm *simulator.VirtualMachine) types.BaseMethodFault {
	dc := in.datacenterOf(vm)
	if dc == nil || in.hub.removed(vm.Self) {
		return &types.ManagedObjectNotFound{Obj: vm.Self}
	}
	var fault types.BaseMethodFault
	var disks []Disk
	kept := map[string]bool{}
	ctx.WithLock(vm, func() {
		disks = in.disks(vm)
		for _, device := range vm.Config.Hardware.Device {
			if disk, ok := device.(*types.VirtualDisk); ok && in.keepsDisk(ctx, disk) {
				info := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo)
				kept[info.GetVirtualDeviceFileBackingInfo().FileName] = true
			}
		}
		if res := vm.UnregisterVM(ctx, &types.UnregisterVM{This: vm.Self}); res.Fault() != nil {
			fault = res.Fault().VimFault().(types.BaseMethodFault)
		}
	})
	if fault != nil {
		return fault
	}
	for _, disk := range disks {
		if file, ok := in.datastoreFile(dc, disk.File); ok && !kept[disk.File] {
			_ = os.Remove(file)
			_ = os.Remove(simulator.VirtualDiskBackingFileName(file))
		}
	}
	if directory, ok := in.datastoreFile(dc, directoryOf(vm)); ok {
		removeButDisks(directory)
	}
	in.leaveGroups(vm.Self)
	return nil
}

// removeButDisks empties the directory of a machine whose disks are deleted already. The disks that
// are left were detached before, or are to be kept; vCenter leaves them, too.
func removeButDisks(directory string) {
	left, err := os.ReadDir(directory)
	if err != nil {
		return
	}
	for _, file := range left {
		if filepath.Ext(file.Name()) != ".vmdk" {
			_ = os.RemoveAll(filepath.Join(directory, file.Name()))
		}
	}
	_ = os.Remove(directory) // stays while there is a disk in it
}

// keepsDisk says whether a disk is a first-class disk that outlives its machine.
func (in *Instance) keepsDisk(ctx *simulator.Context, disk *types.VirtualDisk) bool {
	file, ok := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo)
	if !ok || disk.VDiskId == nil || file.GetVirtualDeviceFileBackingInfo().Datastore == nil {
		return false
	}
	res := ctx.Map.VStorageObjectManager().RetrieveVStorageObject(ctx, &types.RetrieveVStorageObject{
		Id: *disk.VDiskId, Datastore: *file.GetVirtualDeviceFileBackingInfo().Datastore,
	})
	body, ok := res.(*methods.RetrieveVStorageObjectBody)
	if !ok || body.Res == nil {
		return false
	}
	keep := body.Res.Returnval.Config.KeepAfterDeleteVm
	return keep != nil && *keep
}

// ShutdownGuest asks the guest; without tools in it there is nobody to ask.
func (vm *strictMachine) ShutdownGuest(ctx *simulator.Context, _ *types.ShutdownGuest) soap.HasFault {
	if vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
		return faulty(&types.InvalidPowerState{
			RequestedState: types.VirtualMachinePowerStatePoweredOn,
			ExistingState:  vm.Runtime.PowerState,
		})
	}
	if vm.Guest.ToolsRunningStatus != string(types.VirtualMachineToolsRunningStatusGuestToolsRunning) {
		return faulty(&types.ToolsUnavailable{})
	}
	if settings := vm.in.guests.settingsOf(vm.Self); !settings.IgnoreShutdown {
		c := vm.in.context()
		time.AfterFunc(time.Duration(settings.ShutdownSeconds*float64(time.Second)), func() {
			c.WithLock(vm.VirtualMachine, func() {
				vm.PowerOffVMTask(c, &types.PowerOffVM_Task{This: vm.Self})
			})
		})
	}
	return &methods.ShutdownGuestBody{Res: &types.ShutdownGuestResponse{}}
}

// RebootGuest asks the guest, which goes down and comes up again; the boot time stays as it was.
func (vm *strictMachine) RebootGuest(ctx *simulator.Context, _ *types.RebootGuest) soap.HasFault {
	if vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
		return faulty(&types.InvalidPowerState{
			RequestedState: types.VirtualMachinePowerStatePoweredOn,
			ExistingState:  vm.Runtime.PowerState,
		})
	}
	if vm.Guest.ToolsRunningStatus != string(types.VirtualMachineToolsRunningStatusGuestToolsRunning) {
		return faulty(&types.ToolsUnavailable{})
	}
	if settings := vm.in.guests.settingsOf(vm.Self); !settings.IgnoreShutdown {
		delay := time.Duration(settings.ShutdownSeconds * float64(time.Second))
		time.AfterFunc(delay, func() { vm.in.guests.reboot(vm.Self) })
	}
	return &methods.RebootGuestBody{Res: &types.RebootGuestResponse{}}
}

// MarkAsTemplate is noticed by those who watch.
func (vm *strictMachine) MarkAsTemplate(_ *simulator.Context, req *types.MarkAsTemplate) soap.HasFault {
	defer vm.in.hub.poke(vm.Self)
	return vm.VirtualMachine.MarkAsTemplate(req)
}

// MarkAsVirtualMachine is noticed by those who watch.
func (vm *strictMachine) MarkAsVirtualMachine(
	_ *simulator.Context, req *types.MarkAsVirtualMachine,
) soap.HasFault {
	defer vm.in.hub.poke(vm.Self)
	return vm.VirtualMachine.MarkAsVirtualMachine(req)
}

// RenameTask faults with DuplicateName for a name that is taken.
func (vm *strictMachine) RenameTask(ctx *simulator.Context, req *types.Rename_Task) soap.HasFault {
	if other := vm.in.sibling(*vm.Parent, req.NewName); other != nil && *other != vm.Self {
		return vm.in.failTask(vm.Self, vm.in.duplicate(*vm.Parent, req.NewName, nil)).RenameTask(ctx, req)
	}
	return vm.VirtualMachine.RenameTask(ctx, req)
}

// RelocateVMTask checks where the machine goes.
func (vm *strictMachine) RelocateVMTask(ctx *simulator.Context, req *types.RelocateVM_Task) soap.HasFault {
	fail := func(property string) soap.HasFault {
		fault := &types.InvalidArgument{InvalidProperty: property}
		return vm.in.failTask(vm.Self, fault).RelocateVMTask(ctx, req)
	}
	registry := vm.in.registry()
	if ref := req.Spec.Datastore; ref != nil {
		if _, ok := registry.Get(*ref).(*simulator.Datastore); !ok {
			return fail("spec.datastore")
		}
	}
	if ref := req.Spec.Pool; ref != nil {
		if _, ok := registry.Get(*ref).(*simulator.ResourcePool); !ok {
			return fail("spec.pool")
		}
	}
	if ref := req.Spec.Host; ref != nil {
		if _, ok := registry.Get(*ref).(*simulator.HostSystem); !ok {
			return fail("spec.host")
		}
	}
	if ref := req.Spec.Folder; ref != nil {
		if _, ok := registry.Get(*ref).(*simulator.Folder); !ok {
			return fail("spec.folder")
		}
	}
	if fault := vm.in.hardwareOf(vm.VirtualMachine).check(req.Spec.DeviceChange); fault != nil {
		return vm.in.failTask(vm.Self, fault).RelocateVMTask(ctx, req)
	}
	return vm.VirtualMachine.RelocateVMTask(ctx, req)
}
