package main

import (
	"slices"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// strictViews makes list views of ours.
type strictViews struct {
	*simulator.ViewManager

	in *Instance
}

// CreateListView faults when an object is unknown or hidden.
func (m *strictViews) CreateListView(ctx *simulator.Context, req *types.CreateListView) soap.HasFault {
	view := &listView{in: m.in}
	view.Self.Type = "ListView"
	if unresolved := view.add(ctx, req.Obj); len(unresolved) > 0 {
		return faulty(&types.ManagedObjectNotFound{Obj: unresolved[0]})
	}
	ctx.Session.Put(view)
	return &methods.CreateListViewBody{Res: &types.CreateListViewResponse{Returnval: view.Self}}
}

// listView is a list of objects. The simulator's own takes the lock of each property filter while
// it holds its own, and the filters take them the other way round: a deadlock. Here the list has a
// lock that is never held while another is taken, and filters are told by the hub.
type listView struct {
	mo.ListView

	in *Instance
	mu sync.Mutex // guards View
}

// add returns the references that do not resolve; a list has each object once.
func (v *listView) add(ctx *simulator.Context, refs []moRef) []moRef {
	var unresolved []moRef
	for _, ref := range refs {
		if !v.in.inventoried(ctx, ref) || !v.in.access.visible(accountOf(ctx), ref) {
			unresolved = append(unresolved, ref)
			continue
		}
		v.mu.Lock()
		if !slices.Contains(v.View, ref) {
			v.View = append(v.View, ref)
		}
		v.mu.Unlock()
	}
	return unresolved
}

func (v *listView) remove(refs []moRef) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.View = slices.DeleteFunc(slices.Clone(v.View), func(ref moRef) bool {
		return slices.Contains(refs, ref)
	})
}

func (v *listView) members() []moRef {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.View)
}

// Get is what property reads look at.
func (v *listView) Get() mo.Reference {
	return &mo.ListView{ManagedObjectView: mo.ManagedObjectView{Self: v.Self, View: v.members()}}
}

// ModifyListView returns the references that do not resolve.
func (v *listView) ModifyListView(ctx *simulator.Context, req *types.ModifyListView) soap.HasFault {
	v.remove(req.Remove)
	unresolved := v.add(ctx, req.Add)
	v.in.hub.poke(v.Self)
	return &methods.ModifyListViewBody{
		Res: &types.ModifyListViewResponse{Returnval: unresolved},
	}
}

// ResetListView returns the references that do not resolve.
func (v *listView) ResetListView(ctx *simulator.Context, req *types.ResetListView) soap.HasFault {
	v.remove(v.members())
	unresolved := v.add(ctx, req.Obj)
	v.in.hub.poke(v.Self)
	return &methods.ResetListViewBody{Res: &types.ResetListViewResponse{Returnval: unresolved}}
}

// DestroyView forgets the list.
func (v *listView) DestroyView(ctx *simulator.Context, req *types.DestroyView) soap.HasFault {
	ctx.Session.Remove(ctx, req.This)
	v.in.hub.poke(v.Self)
	return &methods.DestroyViewBody{Res: &types.DestroyViewResponse{}}
}
