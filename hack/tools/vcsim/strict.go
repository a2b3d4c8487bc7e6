package main

import (
	"reflect"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// The simulator calls Registry.Handler before it dispatches a call: a fault from it is the answer,
// and a receiver from it gets the call instead of the object. That is how strict mode takes away
// what the simulator does differently from a vCenter.

// accountOf is the account of the caller's session; "" is the program itself.
func accountOf(ctx *simulator.Context) string {
	if ctx.Session == nil {
		return ""
	}
	return ctx.Session.UserName
}

// before sees every call of the vim25 endpoint.
func (in *Instance) before(
	ctx *simulator.Context, method *simulator.Method,
) (mo.Reference, types.BaseMethodFault) {
	account := accountOf(ctx)
	if ctx.Session != nil && account == "" {
		return in.receiver(ctx, method) // our own call
	}
	if login, ok := method.Body.(*types.Login); ok {
		account = login.UserName
	}
	in.counters.account(account, method.Name)
	if rule := in.rules.pick(account, in.nameOf(method.This), method); rule != nil {
		failing, fault := in.inject(rule, method)
		if fault != nil {
			return nil, fault
		}
		return in.instead(method, failing), nil
	}
	if !in.options.Strict {
		return nil, nil
	}
	if ctx.Session == nil {
		return nil, in.withoutSession(method)
	}
	if fault := in.checkReferences(ctx, method); fault != nil {
		return nil, fault
	}
	if fault := in.access.check(account, method); fault != nil {
		return nil, fault
	}
	if fault := in.checkBusy(method); fault != nil {
		return nil, fault
	}
	if fault := in.leases.heard(method); fault != nil {
		return nil, fault
	}
	if method.Name == "Logout" {
		go in.afterSession(clone(ctx))
	}
	return in.receiver(ctx, method)
}

// instead makes the simulator call another receiver. It prefers whatever it finds under the
// reference, so the reference has to be one that nobody knows.
func (in *Instance) instead(method *simulator.Method, receiver mo.Reference) mo.Reference {
	method.This = in.privateReference(method.This)
	return receiver
}

// receiver is what strict mode puts in front of the object that a method is called on, if anything.
func (in *Instance) receiver(
	ctx *simulator.Context, method *simulator.Method,
) (mo.Reference, types.BaseMethodFault) {
	if !in.options.Strict {
		return nil, nil
	}
	var receiver mo.Reference
	switch object := in.registry().Get(method.This).(type) {
	case *simulator.VirtualMachine:
		receiver = &strictMachine{VirtualMachine: object, in: in}
	case *simulator.Folder:
		receiver = &strictFolder{Folder: object, in: in}
	case *simulator.SearchIndex:
		receiver = &strictSearch{SearchIndex: object, in: in}
	case *simulator.ViewManager:
		receiver = &strictViews{ViewManager: object, in: in}
	case *simulator.AuthorizationManager:
		receiver = &strictAuthorization{AuthorizationManager: object, in: in}
	case *simulator.OvfManager:
		receiver = &strictOvf{OvfManager: object, in: in}
	case *simulator.EnvironmentBrowser:
		receiver = &strictBrowser{EnvironmentBrowser: object, in: in}
	case *simulator.ResourcePool:
		receiver = &strictPool{ResourcePool: object, in: in}
	case *simulator.ClusterComputeResource:
		receiver = &strictCluster{ClusterComputeResource: object, in: in}
	default:
		return nil, nil
	}
	return in.instead(method, receiver), nil
}

func (in *Instance) installStrict() {
	ref := in.registry().Get(vim25.ServiceInstance).(*simulator.ServiceInstance).Content.PropertyCollector
	collector := &propertyCollector{}
	collector.Self = ref
	in.registry().Put(collector)
}

// withoutSession refuses property reads, which the simulator lets through; it refuses the other
// methods by itself. What a client reads before it logs in is left alone.
func (in *Instance) withoutSession(method *simulator.Method) types.BaseMethodFault {
	refused := false
	switch body := method.Body.(type) {
	case *types.RetrievePropertiesEx:
		refused = !readableByAnybody(body.SpecSet)
	case *types.RetrieveProperties:
		refused = !readableByAnybody(body.SpecSet)
	default:
		if method.Name == "Fetch" {
			refused = !anonymous(targetOf(method))
		}
	}
	if !refused {
		return nil
	}
	return &types.NotAuthenticated{
		NoPermission: types.NoPermission{Object: &method.This, PrivilegeId: "System.View"},
	}
}

func readableByAnybody(specs []types.PropertyFilterSpec) bool {
	for _, spec := range specs {
		for _, object := range spec.ObjectSet {
			if !anonymous(object.Obj) {
				return false
			}
		}
	}
	return true
}

func anonymous(ref moRef) bool {
	return ref.Type == "ServiceInstance" || ref.Type == "SessionManager"
}

// targetOf is the object a call is meant for; the simulator redirects attribute reads.
func targetOf(method *simulator.Method) moRef {
	if method.Name == "Fetch" {
		body := reflect.Indirect(reflect.ValueOf(method.Body))
		if this := body.FieldByName("This"); this.IsValid() {
			return this.Interface().(moRef)
		}
	}
	return method.This
}

// toleratesUnknown lists the methods that say by themselves what they make of an unknown object.
var toleratesUnknown = map[string]bool{
	"RetrieveProperties": true, "RetrievePropertiesEx": true, "CreateFilter": true,
	"ModifyListView": true, "ResetListView": true, "HasPrivilegeOnEntities": true,
	"HasUserPrivilegeOnEntities": true, "FetchUserPrivilegeOnEntities": true, "Fetch": true,
}

// checkReferences refuses calls whose arguments name objects that do not exist, as vCenter does
// when it decodes them; the simulator panics on many, and keeps the object locked for ever.
func (in *Instance) checkReferences(
	ctx *simulator.Context, method *simulator.Method,
) types.BaseMethodFault {
	account := accountOf(ctx)
	if in.inventoried(ctx, method.This) && !in.access.visible(account, method.This) {
		return denied(method.This, "System.View")
	}
	if method.Name == "Fetch" && !in.access.visible(account, targetOf(method)) {
		return denied(targetOf(method), "System.View")
	}
	if toleratesUnknown[method.Name] {
		return nil
	}
	for _, ref := range references(reflect.ValueOf(method.Body)) {
		if ref == method.This || ref.Value == "" {
			continue
		}
		if !in.inventoried(ctx, ref) {
			return &types.ManagedObjectNotFound{Obj: ref}
		}
		if !in.access.visible(account, ref) {
			return denied(ref, "System.View")
		}
	}
	return nil
}

func (in *Instance) inventoried(ctx *simulator.Context, ref moRef) bool {
	return ctx.Session.Get(plain(ref)) != nil && !in.hub.removed(plain(ref))
}

// references are all managed object references anywhere in a request.
func references(value reflect.Value) []moRef {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			return references(value.Elem())
		}
	case reflect.Slice:
		var found []moRef
		for i := range value.Len() {
			found = append(found, references(value.Index(i))...)
		}
		return found
	case reflect.Struct:
		if ref, ok := value.Interface().(moRef); ok {
			return []moRef{ref}
		}
		var found []moRef
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				found = append(found, references(value.Field(i))...)
			}
		}
		return found
	}
	return nil
}

// changesMachine lists the methods that vCenter refuses while another task changes the machine.
var changesMachine = map[string]bool{
	"PowerOnVM_Task": true, "PowerOffVM_Task": true, "SuspendVM_Task": true, "ResetVM_Task": true,
	"ReconfigVM_Task": true, "RelocateVM_Task": true, "UpgradeVM_Task": true, "Destroy_Task": true,
	"CustomizeVM_Task": true, "CreateSnapshot_Task": true, "CreateSnapshotEx_Task": true,
	"RemoveAllSnapshots_Task": true, "RevertToCurrentSnapshot_Task": true, "UnregisterVM": true,
	"AttachDisk_Task": true, "DetachDisk_Task": true, "MarkAsTemplate": true,
	"MarkAsVirtualMachine": true,
}

func (in *Instance) checkBusy(method *simulator.Method) types.BaseMethodFault {
	if method.This.Type != "VirtualMachine" || !changesMachine[method.Name] {
		return nil
	}
	if task, ok := in.hub.unfinishedTask(plain(method.This)); ok {
		return &types.TaskInProgress{Task: task}
	}
	return nil
}
