package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// What befalls machines and clusters in the field: questions that stop a machine, backup programs
// that forbid methods, machines that are registered again under another reference, renames.

func (c *control) troubleRoutes(route func(string, func(*http.Request, []byte) (any, error))) {
	route("POST /vms/question", c.ask)
	route("POST /vms/disable", c.disableMethods)
	route("POST /vms/reregister", c.reregister)
	route("POST /vms/connection", c.setConnection)
	route("POST /rename", c.rename)
}

// ask stops a machine with a question, or takes the question back when its text is empty.
func (c *control) ask(_ *http.Request, body []byte) (any, error) {
	request, err := decode[struct {
		VM   string `json:"vm"`
		Text string `json:"text"`
	}](body)
	if err != nil {
		return nil, err
	}
	vm, err := c.in.findMachine(request.VM)
	if err != nil {
		return nil, err
	}
	var question *types.VirtualMachineQuestionInfo
	if request.Text != "" {
		question = &types.VirtualMachineQuestionInfo{
			Id:   "1",
			Text: request.Text,
			Choice: types.ChoiceOption{
				ChoiceInfo: []types.BaseElementDescription{
					&types.ElementDescription{
						Description: types.Description{Label: "Retry", Summary: "Retry"}, Key: "0",
					},
				},
			},
		}
	}
	ctx := c.in.context()
	ctx.WithLock(vm, func() { vm.Runtime.Question = question })
	c.in.hub.poke(vm.Self)
	return nothing, nil
}

// setConnection makes a machine inaccessible, as the loss of its datastore does, or gives it back.
func (c *control) setConnection(_ *http.Request, body []byte) (any, error) {
	request, err := decode[struct {
		VM    string `json:"vm"`
		State string `json:"state"` // connected | disconnected | orphaned | inaccessible | invalid
	}](body)
	if err != nil {
		return nil, err
	}
	vm, err := c.in.findMachine(request.VM)
	if err != nil {
		return nil, err
	}
	c.in.registry().AtomicUpdate(c.in.context(), vm, []types.PropertyChange{{
		Name: "runtime.connectionState", Val: types.VirtualMachineConnectionState(request.State),
	}})
	return nothing, nil
}

// disableMethods forbids methods on a machine, as a backup program does while it reads the disks.
func (c *control) disableMethods(_ *http.Request, body []byte) (any, error) {
	request, err := decode[struct {
		VM      string   `json:"vm"`
		Methods []string `json:"methods"`
	}](body)
	if err != nil {
		return nil, err
	}
	vm, err := c.in.findMachine(request.VM)
	if err != nil {
		return nil, err
	}
	c.in.registry().AtomicUpdate(c.in.context(), vm, []types.PropertyChange{
		{Name: "disabledMethod", Val: request.Methods},
	})
	return nothing, nil
}

// reregister takes a machine out of the inventory and registers its files again: the same machine
// with all its configuration, under a reference that is new. It is off afterwards.
func (c *control) reregister(_ *http.Request, body []byte) (any, error) {
	_, vm, err := c.target(body)
	if err != nil {
		return nil, err
	}
	if vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
		if err := c.power(vm.Self, "off"); err != nil {
			return nil, err
		}
	}
	ctx, registry := c.in.context(), c.in.registry()
	folder, ok := registry.Get(*vm.Parent).(*simulator.Folder)
	if !ok {
		return nil, fmt.Errorf("%s lies in no folder", vm.Name)
	}
	again := *vm
	ctx.WithLock(vm, func() {
		if res := vm.UnregisterVM(ctx, &types.UnregisterVM{This: vm.Self}); res.Fault() != nil {
			err = errors.New(res.Fault().String)
		}
	})
	if err != nil {
		return nil, err
	}
	again.Self = moRef{}
	again.RecentTask = nil
	registry.PutEntity(folder, &again)
	ctx.WithLock(folder, func() { registry.AddReference(ctx, folder, &folder.ChildEntity, again.Self) })
	c.refer(&again)
	return c.describe(again.Self)
}

// refer makes the places of a machine know it.
func (c *control) refer(vm *simulator.VirtualMachine) {
	ctx, registry := c.in.context(), c.in.registry()
	if host, ok := registry.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
		ctx.WithLock(host, func() { registry.AddReference(ctx, host, &host.Vm, vm.Self) })
	}
	if vm.ResourcePool != nil {
		if pool, ok := registry.Get(*vm.ResourcePool).(*simulator.ResourcePool); ok {
			ctx.WithLock(pool, func() { registry.AddReference(ctx, pool, &pool.Vm, vm.Self) })
		}
	}
	for _, ref := range vm.Datastore {
		if store, ok := registry.Get(ref).(*simulator.Datastore); ok {
			ctx.WithLock(store, func() { registry.AddReference(ctx, store, &store.Vm, vm.Self) })
		}
	}
}

// rename gives a cluster, a folder or a datacenter another name.
func (c *control) rename(_ *http.Request, body []byte) (any, error) {
	request, err := decode[struct {
		Entity string `json:"entity"`
		Name   string `json:"name"`
	}](body)
	if err != nil {
		return nil, err
	}
	entity, err := c.in.find(request.Entity)
	if err != nil {
		return nil, err
	}
	if _, ok := entity.(*simulator.VirtualMachine); ok {
		return nil, errors.New("machines are renamed by /vms/change")
	}
	if request.Name == "" {
		return nil, errors.New("name is missing")
	}
	c.in.registry().AtomicUpdate(c.in.context(), entity, []types.PropertyChange{
		{Name: "name", Val: request.Name},
	})
	return nothing, nil
}
