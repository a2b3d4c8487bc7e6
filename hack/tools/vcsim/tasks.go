package main

import (
	"strings"
	"sync/atomic"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

var privateReferences atomic.Int64

// privateReference names the same object in a way that nobody else uses. The simulator runs each
// task under the lock of its object; a task started on a private reference locks nothing, so it
// neither waits for other tasks on the object nor makes readers of the object wait.
func (in *Instance) privateReference(ref moRef) moRef {
	ref.ServerGUID = in.options.InstanceUUID + "/" + decimal(privateReferences.Add(1))
	return ref
}

// startTask runs a task of ours in behalf of a caller. It holds no lock; run gets a context of its
// own and locks what it changes.
func (in *Instance) startTask(
	ctx *simulator.Context,
	on moRef,
	method string,
	run func(*simulator.Context) (types.AnyType, types.BaseMethodFault),
) moRef {
	c := clone(ctx)
	task := simulator.CreateTask(
		in.privateReference(on),
		strings.TrimSuffix(method, "_Task")+"Task",
		func(*simulator.Task) (types.AnyType, types.BaseMethodFault) { return run(c) },
	)
	task.Info.EntityName = in.nameOf(on)
	task.Info.Reason = &types.TaskReasonUser{UserName: accountOf(ctx)}
	ref := task.Run(clone(ctx))
	in.registry().AtomicUpdate(in.context(), task, []types.PropertyChange{{Name: "info.entity", Val: on}})
	return ref
}

// startLockedTask is startTask for a task that changes one machine and excludes others on it.
func (in *Instance) startLockedTask(
	ctx *simulator.Context,
	on mo.Reference,
	method string,
	run func(*simulator.Context) (types.AnyType, types.BaseMethodFault),
) moRef {
	c := clone(ctx)
	task := simulator.CreateTask(
		on.Reference(),
		strings.TrimSuffix(method, "_Task")+"Task",
		func(*simulator.Task) (types.AnyType, types.BaseMethodFault) { return run(c) },
	)
	task.Info.EntityName = in.nameOf(on.Reference())
	task.Info.Reason = &types.TaskReasonUser{UserName: accountOf(ctx)}
	return task.Run(c)
}
