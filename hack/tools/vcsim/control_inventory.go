package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// What an administrator, or another program, does to the inventory behind the back of the client
// under test. None of it counts as a call.

// unknownFields refuses fields that the target does not have.
func unknownFields(body []byte, target any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	return decoder.Decode(target)
}

func (c *control) inventoryRoutes(route func(string, func(*http.Request, []byte) (any, error))) {
	route("GET /vms", func(*http.Request, []byte) (any, error) { return c.in.listMachines(), nil })
	route("POST /vms", c.createMachine)
	route("POST /vms/destroy", c.destroyMachine)
	route("POST /vms/power", c.powerMachine)
	route("POST /vms/move", c.moveMachine)
	route("POST /vms/change", c.changeMachine)
	route("POST /vms/snapshot", c.snapshotMachine)
	route("POST /folders", c.createFolder)
	route("POST /hosts", c.setHost)
	route("POST /clusters", c.setCluster)
	route("POST /tasks/forget", c.forgetTasks)
	route("POST /policies", c.setPolicy)
	c.troubleRoutes(route)
}

// NewMachine describes a machine that somebody else makes.
type NewMachine struct {
	Name         string            `json:"name"`
	Datacenter   string            `json:"datacenter"` // the first when empty
	Folder       string            `json:"folder"`     // path; the datacenter's top folder when empty
	CopyOf       string            `json:"copyOf"`     // machine or template to clone with its extraConfig
	UUID         string            `json:"uuid"`
	InstanceUUID string            `json:"instanceUuid"` // may be another machine's
	ExtraConfig  map[string]string `json:"extraConfig"`
	Annotation   string            `json:"annotation"`
	PowerOn      bool              `json:"powerOn"`
}

func (c *control) createMachine(_ *http.Request, body []byte) (any, error) {
	wanted, err := decode[NewMachine](body)
	if err != nil {
		return nil, err
	}
	if wanted.Name == "" {
		return nil, errors.New("name is missing")
	}
	dc, folder, err := c.place(wanted)
	if err != nil {
		return nil, err
	}
	config := types.VirtualMachineConfigSpec{
		Uuid: wanted.UUID, InstanceUuid: wanted.InstanceUUID, Annotation: wanted.Annotation,
	}
	for key, value := range wanted.ExtraConfig {
		config.ExtraConfig = append(config.ExtraConfig, &types.OptionValue{Key: key, Value: value})
	}
	ref, err := c.make(wanted, dc, folder, config)
	if err != nil {
		return nil, err
	}
	if wanted.PowerOn {
		if err := c.power(ref, "on"); err != nil {
			return nil, err
		}
	}
	return c.describe(ref)
}

func (c *control) place(wanted NewMachine) (*simulator.Datacenter, moRef, error) {
	var dc *simulator.Datacenter
	for _, entity := range c.in.registry().All("Datacenter") {
		candidate := entity.(*simulator.Datacenter)
		named := wanted.Datacenter == candidate.Name
		if named || (wanted.Datacenter == "" && (dc == nil || candidate.Name < dc.Name)) {
			dc = candidate
		}
	}
	if wanted.Folder == "" {
		if dc == nil {
			return nil, moRef{}, fmt.Errorf("there is no datacenter %q", wanted.Datacenter)
		}
		return dc, dc.VmFolder, nil
	}
	entity, err := c.in.find(wanted.Folder)
	if err != nil {
		return nil, moRef{}, err
	}
	return c.in.datacenterOf(entity), entity.Reference(), nil
}

func (c *control) make(
	wanted NewMachine, dc *simulator.Datacenter, folder moRef, config types.VirtualMachineConfigSpec,
) (moRef, error) {
	ctx, client := c.in.context(), c.in.client()
	pool, datastore, err := c.in.firstPlace(dc)
	if err != nil {
		return moRef{}, err
	}
	var task *object.Task
	if wanted.CopyOf != "" {
		source, err := c.in.findMachine(wanted.CopyOf)
		if err != nil {
			return moRef{}, err
		}
		task, err = object.NewVirtualMachine(client, source.Self).Clone(
			ctx, object.NewFolder(client, folder), wanted.Name, types.VirtualMachineCloneSpec{
				Location: types.VirtualMachineRelocateSpec{Pool: &pool, Datastore: &datastore.Self},
				Config:   &config,
			})
		if err != nil {
			return moRef{}, err
		}
	} else {
		config.Name = wanted.Name
		config.GuestId = string(types.VirtualMachineGuestOsIdentifierOtherGuest64)
		config.NumCPUs, config.MemoryMB = 1, 512
		config.Files = &types.VirtualMachineFileInfo{VmPathName: "[" + datastore.Name + "]"}
		task, err = object.NewFolder(client, folder).CreateVM(
			ctx, config, object.NewResourcePool(client, pool), nil)
		if err != nil {
			return moRef{}, err
		}
	}
	result, err := c.in.finished(task.Reference())
	if err != nil {
		return moRef{}, err
	}
	return result.(moRef), nil
}

func (c *control) describe(ref moRef) (any, error) {
	vm, ok := c.in.registry().Get(ref).(*simulator.VirtualMachine)
	if !ok {
		return nil, fmt.Errorf("%s is gone", ref.Value)
	}
	return c.in.describe(vm), nil
}

// onMachine is the request of an action on one machine, given by name, path or moRef.
type onMachine struct {
	VM          string            `json:"vm"`
	State       string            `json:"state,omitempty"`  // power: on | off | suspended
	Folder      string            `json:"folder,omitempty"` // move: path or moRef
	Name        string            `json:"name,omitempty"`   // snapshot
	CPUs        int32             `json:"cpus,omitempty"`   // change
	MemoryMB    int64             `json:"memoryMB,omitempty"`
	Annotation  string            `json:"annotation,omitempty"`
	ExtraConfig map[string]string `json:"extraConfig,omitempty"` // "" takes a key away
	NewName     string            `json:"newName,omitempty"`
}

func (c *control) target(body []byte) (onMachine, *simulator.VirtualMachine, error) {
	request, err := decode[onMachine](body)
	if err != nil {
		return request, nil, err
	}
	vm, err := c.in.findMachine(request.VM)
	return request, vm, err
}

func (c *control) destroyMachine(_ *http.Request, body []byte) (any, error) {
	_, vm, err := c.target(body)
	if err != nil {
		return nil, err
	}
	if vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
		if err := c.power(vm.Self, "off"); err != nil {
			return nil, err
		}
	}
	res, err := methods.Destroy_Task(c.in.context(), c.in.service, &types.Destroy_Task{This: vm.Self})
	if err != nil {
		return nil, err
	}
	if _, err := c.in.finished(res.Returnval); err != nil {
		return nil, err
	}
	return nothing, nil
}

func (c *control) powerMachine(_ *http.Request, body []byte) (any, error) {
	request, vm, err := c.target(body)
	if err != nil {
		return nil, err
	}
	if err := c.power(vm.Self, request.State); err != nil {
		return nil, err
	}
	return c.describe(vm.Self)
}

func (c *control) power(ref moRef, state string) error {
	vm := object.NewVirtualMachine(c.in.client(), ref)
	ctx := c.in.context()
	var task *object.Task
	var err error
	switch state {
	case "on":
		task, err = vm.PowerOn(ctx)
	case "off":
		task, err = vm.PowerOff(ctx)
	case "suspended":
		task, err = vm.Suspend(ctx)
	default:
		return fmt.Errorf("state is %q, it can be on, off or suspended", state)
	}
	if err != nil {
		return err
	}
	_, err = c.in.finished(task.Reference())
	return err
}

func (c *control) moveMachine(_ *http.Request, body []byte) (any, error) {
	request, vm, err := c.target(body)
	if err != nil {
		return nil, err
	}
	folder, err := c.in.find(request.Folder)
	if err != nil {
		return nil, err
	}
	task, err := object.NewFolder(c.in.client(), folder.Reference()).MoveInto(c.in.context(), []moRef{vm.Self})
	if err != nil {
		return nil, err
	}
	if _, err := c.in.finished(task.Reference()); err != nil {
		return nil, err
	}
	return c.describe(vm.Self)
}

func (c *control) changeMachine(_ *http.Request, body []byte) (any, error) {
	request, vm, err := c.target(body)
	if err != nil {
		return nil, err
	}
	spec := types.VirtualMachineConfigSpec{
		Name: request.NewName, NumCPUs: request.CPUs, MemoryMB: request.MemoryMB,
		Annotation: request.Annotation,
	}
	for key, value := range request.ExtraConfig {
		spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: key, Value: value})
	}
	task, err := object.NewVirtualMachine(c.in.client(), vm.Self).Reconfigure(c.in.context(), spec)
	if err != nil {
		return nil, err
	}
	if _, err := c.in.finished(task.Reference()); err != nil {
		return nil, err
	}
	return c.describe(vm.Self)
}

func (c *control) snapshotMachine(_ *http.Request, body []byte) (any, error) {
	request, vm, err := c.target(body)
	if err != nil {
		return nil, err
	}
	task, err := object.NewVirtualMachine(c.in.client(), vm.Self).CreateSnapshot(
		c.in.context(), request.Name, "", false, false)
	if err != nil {
		return nil, err
	}
	if _, err := c.in.finished(task.Reference()); err != nil {
		return nil, err
	}
	return c.describe(vm.Self)
}

// createFolder makes the folders of a path that are not there yet.
func (c *control) createFolder(_ *http.Request, body []byte) (any, error) {
	wanted, err := decode[struct {
		Path string `json:"path"`
	}](body)
	if err != nil {
		return nil, err
	}
	names := strings.Split(strings.Trim(wanted.Path, "/"), "/")
	var at mo.Entity
	for i := range names {
		path := "/" + strings.Join(names[:i+1], "/")
		found, err := c.in.find(path)
		if err != nil && at != nil {
			folder := object.NewFolder(c.in.client(), at.Reference())
			made, failure := folder.CreateFolder(c.in.context(), names[i])
			if failure != nil {
				return nil, failure
			}
			found, err = c.in.find(made.Reference().Value)
		}
		if err != nil {
			return nil, err
		}
		at = found
	}
	return map[string]string{"moRef": at.Reference().Value, "path": c.in.pathOf(at)}, nil
}

// setHost connects or disconnects a host, or puts it into maintenance; its machines stay as they are.
func (c *control) setHost(_ *http.Request, body []byte) (any, error) {
	wanted, err := decode[struct {
		Host        string `json:"host"`
		Connection  string `json:"connection"` // connected | disconnected | notResponding
		Maintenance *bool  `json:"maintenance"`
	}](body)
	if err != nil {
		return nil, err
	}
	entity, err := c.in.find(wanted.Host)
	if err != nil {
		return nil, err
	}
	host, ok := entity.(*simulator.HostSystem)
	if !ok {
		return nil, fmt.Errorf("%s is no host", wanted.Host)
	}
	var changes []types.PropertyChange
	if wanted.Connection != "" {
		state := types.HostSystemConnectionState(wanted.Connection)
		changes = append(changes,
			types.PropertyChange{Name: "runtime.connectionState", Val: state},
			types.PropertyChange{Name: "summary.runtime.connectionState", Val: state})
	}
	if wanted.Maintenance != nil {
		changes = append(changes,
			types.PropertyChange{Name: "runtime.inMaintenanceMode", Val: *wanted.Maintenance},
			types.PropertyChange{Name: "summary.runtime.inMaintenanceMode", Val: *wanted.Maintenance})
	}
	c.in.registry().AtomicUpdate(c.in.context(), host, changes)
	return nothing, nil
}

func (c *control) setCluster(_ *http.Request, body []byte) (any, error) {
	wanted, err := decode[struct {
		Cluster string `json:"cluster"`
		DRS     string `json:"drs"`
	}](body)
	if err != nil {
		return nil, err
	}
	if !validDRS(wanted.DRS) {
		return nil, fmt.Errorf("drs is %q, it can be off, manual, partiallyAutomated or fullyAutomated", wanted.DRS)
	}
	entity, err := c.in.find(wanted.Cluster)
	if err != nil {
		return nil, err
	}
	if _, ok := entity.(*simulator.ClusterComputeResource); !ok {
		return nil, fmt.Errorf("%s is no cluster", wanted.Cluster)
	}
	c.in.setClusterDRS(entity, wanted.DRS)
	return nothing, nil
}

// forgetTasks drops the finished tasks, as vCenter does after some minutes.
func (c *control) forgetTasks(*http.Request, []byte) (any, error) {
	return map[string]int{"forgotten": c.in.hub.forgetFinished()}, nil
}
