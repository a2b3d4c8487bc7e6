package main

import (
	"reflect"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// failingTask answers in place of an object: each method starts a task that ends in the same fault,
// the way vCenter reports whatever it finds out after it accepted a call.
type failingTask struct {
	mo.ManagedEntity // gives it a lock of its own, and the shape of a managed object

	in    *Instance
	on    moRef
	fault types.BaseMethodFault
}

func (in *Instance) failTask(on moRef, fault types.BaseMethodFault) *failingTask {
	f := &failingTask{in: in, on: on, fault: fault}
	f.Self = in.privateReference(on)
	return f
}

func canFailInTask(method string) bool {
	name := strings.TrimSuffix(method, "_Task") + "Task"
	_, ok := reflect.TypeFor[*failingTask]().MethodByName(name)
	return ok && strings.HasSuffix(method, "_Task")
}

func (f *failingTask) run(ctx *simulator.Context, method string) moRef {
	return f.in.startTask(ctx, f.on, method, func(*simulator.Context) (types.AnyType, types.BaseMethodFault) {
		return nil, f.fault
	})
}

// CloneVMTask fails in its task.
func (f *failingTask) CloneVMTask(ctx *simulator.Context, _ *types.CloneVM_Task) soap.HasFault {
	return &methods.CloneVM_TaskBody{Res: &types.CloneVM_TaskResponse{Returnval: f.run(ctx, "CloneVM_Task")}}
}

// CreateVMTask fails in its task.
func (f *failingTask) CreateVMTask(ctx *simulator.Context, _ *types.CreateVM_Task) soap.HasFault {
	return &methods.CreateVM_TaskBody{Res: &types.CreateVM_TaskResponse{Returnval: f.run(ctx, "CreateVM_Task")}}
}

// RegisterVMTask fails in its task.
func (f *failingTask) RegisterVMTask(ctx *simulator.Context, _ *types.RegisterVM_Task) soap.HasFault {
	return &methods.RegisterVM_TaskBody{Res: &types.RegisterVM_TaskResponse{Returnval: f.run(ctx, "RegisterVM_Task")}}
}

// PowerOnVMTask fails in its task.
func (f *failingTask) PowerOnVMTask(ctx *simulator.Context, _ *types.PowerOnVM_Task) soap.HasFault {
	return &methods.PowerOnVM_TaskBody{Res: &types.PowerOnVM_TaskResponse{Returnval: f.run(ctx, "PowerOnVM_Task")}}
}

// PowerOffVMTask fails in its task.
func (f *failingTask) PowerOffVMTask(ctx *simulator.Context, _ *types.PowerOffVM_Task) soap.HasFault {
	return &methods.PowerOffVM_TaskBody{Res: &types.PowerOffVM_TaskResponse{Returnval: f.run(ctx, "PowerOffVM_Task")}}
}

// SuspendVMTask fails in its task.
func (f *failingTask) SuspendVMTask(ctx *simulator.Context, _ *types.SuspendVM_Task) soap.HasFault {
	return &methods.SuspendVM_TaskBody{Res: &types.SuspendVM_TaskResponse{Returnval: f.run(ctx, "SuspendVM_Task")}}
}

// ResetVMTask fails in its task.
func (f *failingTask) ResetVMTask(ctx *simulator.Context, _ *types.ResetVM_Task) soap.HasFault {
	return &methods.ResetVM_TaskBody{Res: &types.ResetVM_TaskResponse{Returnval: f.run(ctx, "ResetVM_Task")}}
}

// ReconfigVMTask fails in its task.
func (f *failingTask) ReconfigVMTask(ctx *simulator.Context, _ *types.ReconfigVM_Task) soap.HasFault {
	return &methods.ReconfigVM_TaskBody{Res: &types.ReconfigVM_TaskResponse{Returnval: f.run(ctx, "ReconfigVM_Task")}}
}

// RelocateVMTask fails in its task.
func (f *failingTask) RelocateVMTask(ctx *simulator.Context, _ *types.RelocateVM_Task) soap.HasFault {
	return &methods.RelocateVM_TaskBody{Res: &types.RelocateVM_TaskResponse{Returnval: f.run(ctx, "RelocateVM_Task")}}
}

// UpgradeVMTask fails in its task.
func (f *failingTask) UpgradeVMTask(ctx *simulator.Context, _ *types.UpgradeVM_Task) soap.HasFault {
	return &methods.UpgradeVM_TaskBody{Res: &types.UpgradeVM_TaskResponse{Returnval: f.run(ctx, "UpgradeVM_Task")}}
}

// CustomizeVMTask fails in its task.
func (f *failingTask) CustomizeVMTask(ctx *simulator.Context, _ *types.CustomizeVM_Task) soap.HasFault {
	return &methods.CustomizeVM_TaskBody{Res: &types.CustomizeVM_TaskResponse{Returnval: f.run(ctx, "CustomizeVM_Task")}}
}

// DestroyTask fails in its task.
func (f *failingTask) DestroyTask(ctx *simulator.Context, _ *types.Destroy_Task) soap.HasFault {
	return &methods.Destroy_TaskBody{Res: &types.Destroy_TaskResponse{Returnval: f.run(ctx, "Destroy_Task")}}
}

// RenameTask fails in its task.
func (f *failingTask) RenameTask(ctx *simulator.Context, _ *types.Rename_Task) soap.HasFault {
	return &methods.Rename_TaskBody{Res: &types.Rename_TaskResponse{Returnval: f.run(ctx, "Rename_Task")}}
}

// MoveIntoFolderTask fails in its task.
func (f *failingTask) MoveIntoFolderTask(ctx *simulator.Context, _ *types.MoveIntoFolder_Task) soap.HasFault {
	return &methods.MoveIntoFolder_TaskBody{Res: &types.MoveIntoFolder_TaskResponse{Returnval: f.run(ctx, "MoveIntoFolder_Task")}}
}

// CreateSnapshotTask fails in its task.
func (f *failingTask) CreateSnapshotTask(ctx *simulator.Context, _ *types.CreateSnapshot_Task) soap.HasFault {
	return &methods.CreateSnapshot_TaskBody{Res: &types.CreateSnapshot_TaskResponse{Returnval: f.run(ctx, "CreateSnapshot_Task")}}
}

// CreateSnapshotExTask fails in its task.
func (f *failingTask) CreateSnapshotExTask(ctx *simulator.Context, _ *types.CreateSnapshotEx_Task) soap.HasFault {
	return &methods.CreateSnapshotEx_TaskBody{Res: &types.CreateSnapshotEx_TaskResponse{Returnval: f.run(ctx, "CreateSnapshotEx_Task")}}
}

// RemoveSnapshotTask fails in its task.
func (f *failingTask) RemoveSnapshotTask(ctx *simulator.Context, _ *types.RemoveSnapshot_Task) soap.HasFault {
	return &methods.RemoveSnapshot_TaskBody{Res: &types.RemoveSnapshot_TaskResponse{Returnval: f.run(ctx, "RemoveSnapshot_Task")}}
}

// RemoveAllSnapshotsTask fails in its task.
func (f *failingTask) RemoveAllSnapshotsTask(ctx *simulator.Context, _ *types.RemoveAllSnapshots_Task) soap.HasFault {
	return &methods.RemoveAllSnapshots_TaskBody{Res: &types.RemoveAllSnapshots_TaskResponse{Returnval: f.run(ctx, "RemoveAllSnapshots_Task")}}
}

// RevertToSnapshotTask fails in its task.
func (f *failingTask) RevertToSnapshotTask(ctx *simulator.Context, _ *types.RevertToSnapshot_Task) soap.HasFault {
	return &methods.RevertToSnapshot_TaskBody{Res: &types.RevertToSnapshot_TaskResponse{Returnval: f.run(ctx, "RevertToSnapshot_Task")}}
}

// RevertToCurrentSnapshotTask fails in its task.
func (f *failingTask) RevertToCurrentSnapshotTask(ctx *simulator.Context, _ *types.RevertToCurrentSnapshot_Task) soap.HasFault {
	return &methods.RevertToCurrentSnapshot_TaskBody{Res: &types.RevertToCurrentSnapshot_TaskResponse{Returnval: f.run(ctx, "RevertToCurrentSnapshot_Task")}}
}

// ReconfigureComputeResourceTask fails in its task.
func (f *failingTask) ReconfigureComputeResourceTask(ctx *simulator.Context, _ *types.ReconfigureComputeResource_Task) soap.HasFault {
	return &methods.ReconfigureComputeResource_TaskBody{Res: &types.ReconfigureComputeResource_TaskResponse{Returnval: f.run(ctx, "ReconfigureComputeResource_Task")}}
}

// PowerOnMultiVMTask fails in its task.
func (f *failingTask) PowerOnMultiVMTask(ctx *simulator.Context, _ *types.PowerOnMultiVM_Task) soap.HasFault {
	return &methods.PowerOnMultiVM_TaskBody{Res: &types.PowerOnMultiVM_TaskResponse{Returnval: f.run(ctx, "PowerOnMultiVM_Task")}}
}

// AttachDiskTask fails in its task.
func (f *failingTask) AttachDiskTask(ctx *simulator.Context, _ *types.AttachDisk_Task) soap.HasFault {
	return &methods.AttachDisk_TaskBody{Res: &types.AttachDisk_TaskResponse{Returnval: f.run(ctx, "AttachDisk_Task")}}
}

// DetachDiskTask fails in its task.
func (f *failingTask) DetachDiskTask(ctx *simulator.Context, _ *types.DetachDisk_Task) soap.HasFault {
	return &methods.DetachDisk_TaskBody{Res: &types.DetachDisk_TaskResponse{Returnval: f.run(ctx, "DetachDisk_Task")}}
}
