package main

import (
	"reflect"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
)

// known is what a client was told of an object: property path to its value as XML.
type known map[string]string

// propertyFilter is what one filter of a collector has told its client. The collector's lock guards
// everything but the specification.
type propertyFilter struct {
	mo.PropertyFilter

	collector *propertyCollector
	told      map[moRef]known
	ignored   map[moRef]bool // selected on the way, but no property of it is asked for
	dirty     map[moRef]struct{}
	all       bool
	missed    bool // the client was told which objects are not there
}

func newPropertyFilter(pc *propertyCollector, req *types.CreateFilter) *propertyFilter {
	f := &propertyFilter{collector: pc}
	f.Self.Type = "PropertyFilter"
	f.Spec, f.PartialUpdates = req.Spec, req.PartialUpdates
	f.reset()
	return f
}

// DestroyPropertyFilter ends the watch.
func (f *propertyFilter) DestroyPropertyFilter(
	ctx *simulator.Context, req *types.DestroyPropertyFilter,
) soap.HasFault {
	f.collector.dropFilter(f)
	ctx.Session.Remove(ctx, req.This)
	return &methods.DestroyPropertyFilterBody{Res: &types.DestroyPropertyFilterResponse{}}
}

func (f *propertyFilter) reset() {
	f.told, f.ignored = map[moRef]known{}, map[moRef]bool{}
	f.dirty, f.all, f.missed = map[moRef]struct{}{}, true, false
}

func (f *propertyFilter) mark(dirty map[moRef]struct{}, all bool) {
	f.all = f.all || all
	for ref := range dirty {
		f.dirty[ref] = struct{}{}
	}
}

func (f *propertyFilter) restore(ref moRef, before known) {
	if before == nil {
		delete(f.told, ref)
	} else {
		f.told[ref] = before
	}
	f.dirty[ref] = struct{}{}
	f.missed = false
}

// missing are the objects of the specification that are not there; told once, and only by filters
// that are to report them. One that is hidden from the account is there.
func (f *propertyFilter) missing(ctx *simulator.Context) []types.MissingObject {
	report := f.Spec.ReportMissingObjectsInResults
	if f.missed || report == nil || !*report {
		return nil
	}
	f.missed = true
	var missing []types.MissingObject
	for _, object := range f.Spec.ObjectSet {
		if !instanceOf(ctx).inventoried(ctx, object.Obj) {
			fault := &types.ManagedObjectNotFound{Obj: object.Obj}
			missing = append(missing, types.MissingObject{
				Obj: object.Obj, Fault: types.LocalizedMethodFault{Fault: fault},
			})
		}
	}
	return missing
}

func (f *propertyFilter) selected(ctx *simulator.Context) ([]moRef, types.BaseMethodFault) {
	return selection(ctx, f.Spec)
}

// changes compares the selected objects with what the client knows and takes note of what it will
// be told; limit is the most objects, more says that some are left.
func (f *propertyFilter) changes(
	ctx *simulator.Context, limit int,
) (updates []types.ObjectUpdate, steps []undo, more bool, fault types.BaseMethodFault) {
	spec := f.Spec
	spec.ReportMissingObjectsInResults = types.NewBool(true) // an object may go while it is watched
	refs, fault := selection(ctx, spec)
	if fault != nil {
		return nil, nil, false, fault
	}
	access, account := instanceOf(ctx).access, accountOf(ctx)
	selected := make(map[moRef]bool, len(refs))
	var reads []moRef
	for _, ref := range refs {
		if !access.visible(account, ref) {
			continue
		}
		selected[ref] = true
		_, knows := f.told[ref]
		_, dirty := f.dirty[ref]
		if (!knows && !f.ignored[ref]) || dirty || f.all {
			reads = append(reads, ref)
		}
	}
	for ref, before := range f.told {
		if selected[ref] {
			continue
		}
		if len(steps) == limit {
			f.later(reads)
			return updates, steps, true, nil
		}
		updates = append(updates, types.ObjectUpdate{Kind: types.ObjectUpdateKindLeave, Obj: ref})
		steps = append(steps, undo{f, ref, before})
		delete(f.told, ref)
	}
	for len(reads) > 0 {
		if len(steps) >= limit {
			f.later(reads)
			return updates, steps, true, nil
		}
		batch := reads[:min(len(reads), limit-len(steps))]
		objects, fault := f.collector.read(ctx, f.Spec.PropSet, batch)
		if fault != nil {
			f.later(reads)
			for _, step := range steps {
				f.restore(step.ref, step.before)
			}
			return nil, nil, false, fault
		}
		for _, ref := range batch {
			f.ignored[ref] = true
		}
		for _, content := range objects {
			delete(f.ignored, content.Obj)
			if update := f.compare(content); update != nil {
				steps = append(steps, undo{f, content.Obj, f.told[content.Obj]})
				f.told[content.Obj] = values(content)
				updates = append(updates, *update)
			}
		}
		reads = reads[len(batch):]
	}
	f.all = false
	clear(f.dirty)
	return updates, steps, false, nil
}

// later keeps these objects for the next round, and nothing else.
func (f *propertyFilter) later(refs []moRef) {
	f.all = false
	clear(f.dirty)
	for _, ref := range refs {
		f.dirty[ref] = struct{}{}
	}
}

// compare is what changed of one object, or nil.
func (f *propertyFilter) compare(content types.ObjectContent) *types.ObjectUpdate {
	before, knows := f.told[content.Obj]
	update := types.ObjectUpdate{Kind: types.ObjectUpdateKindModify, Obj: content.Obj}
	if !knows {
		update.Kind = types.ObjectUpdateKindEnter
		update.MissingSet = content.MissingSet
	}
	now := values(content)
	for _, property := range content.PropSet {
		if was, had := before[property.Name]; !had || was != now[property.Name] {
			update.ChangeSet = append(update.ChangeSet, types.PropertyChange{
				Name: property.Name, Op: types.PropertyChangeOpAssign, Val: property.Val,
			})
		}
	}
	for name := range before {
		if _, has := now[name]; !has {
			update.ChangeSet = append(update.ChangeSet, types.PropertyChange{
				Name: name, Op: types.PropertyChangeOpAssign,
			})
		}
	}
	if knows && len(update.ChangeSet) == 0 {
		return nil
	}
	return &update
}

func values(content types.ObjectContent) known {
	now := known{}
	for _, property := range content.PropSet {
		text, err := xml.Marshal(property)
		if err != nil {
			continue // it cannot be sent either
		}
		now[property.Name] = string(text)
	}
	return now
}

// selection is the objects that a spec selects and the account may see, in order, each once.
func selection(ctx *simulator.Context, spec types.PropertyFilterSpec) ([]moRef, types.BaseMethodFault) {
	s := &selector{
		ctx:   ctx,
		in:    instanceOf(ctx),
		named: map[string]*types.TraversalSpec{},
		seen:  map[moRef]bool{},
		been:  map[visit]bool{},
	}
	report := spec.ReportMissingObjectsInResults
	for _, object := range spec.ObjectSet {
		if !s.in.inventoried(ctx, object.Obj) {
			if report != nil && *report {
				continue
			}
			return nil, &types.ManagedObjectNotFound{Obj: object.Obj}
		}
		if object.Skip == nil || !*object.Skip {
			s.take(plain(object.Obj))
		}
		if fault := s.walk(object.Obj, object.SelectSet); fault != nil {
			return nil, fault
		}
	}
	return s.found, nil
}

type visit struct {
	ref  moRef
	path string
}

type selector struct {
	ctx   *simulator.Context
	in    *Instance
	named map[string]*types.TraversalSpec
	seen  map[moRef]bool
	been  map[visit]bool // specs that refer to each other by name may lead in circles
	found []moRef
}

func (s *selector) take(ref moRef) {
	if !s.seen[ref] {
		s.seen[ref] = true
		s.found = append(s.found, ref)
	}
}

func (s *selector) walk(from moRef, set []types.BaseSelectionSpec) types.BaseMethodFault {
	for _, each := range set {
		if spec, ok := each.(*types.TraversalSpec); ok && spec.Name != "" {
			s.named[spec.Name] = spec
		}
	}
	for _, each := range set {
		spec, ok := each.(*types.TraversalSpec)
		if !ok {
			if spec = s.named[each.GetSelectionSpec().Name]; spec == nil {
				return &types.InvalidArgument{InvalidProperty: "selectSet"}
			}
		}
		step := visit{from, spec.Name + "/" + spec.Path}
		if spec.Name != "" && s.been[step] {
			continue
		}
		s.been[step] = true
		for _, ref := range s.follow(from, spec.Path) {
			if !s.in.inventoried(s.ctx, ref) || !s.in.access.visible(accountOf(s.ctx), ref) {
				continue
			}
			if spec.Skip == nil || !*spec.Skip {
				s.take(ref)
			}
			if fault := s.walk(ref, spec.SelectSet); fault != nil {
				return fault
			}
		}
	}
	return nil
}

// follow are the references that a property of an object holds.
func (s *selector) follow(from moRef, path string) []moRef {
	object := s.ctx.Session.Get(from)
	if object == nil {
		return nil
	}
	if view, ok := object.(*listView); ok {
		if path == "view" {
			return view.members()
		}
		return nil
	}
	var refs []moRef
	ctx := s.in.context()
	ctx.WithLock(from, func() {
		value := managed(object)
		for _, name := range strings.Split(path, ".") {
			value = reflect.Indirect(value)
			if value.Kind() == reflect.Interface {
				value = reflect.Indirect(value.Elem())
			}
			if value.Kind() != reflect.Struct {
				return
			}
			value = value.FieldByName(strings.ToUpper(name[:min(1, len(name))]) + name[min(1, len(name)):])
		}
		if !value.IsValid() {
			return
		}
		switch x := value.Interface().(type) {
		case moRef:
			refs = []moRef{x}
		case *moRef:
			if x != nil {
				refs = []moRef{*x}
			}
		case []moRef:
			refs = append(refs, x...)
		}
	})
	return refs
}

// read reads properties of objects. What the account may not read is reported as missing, and
// objects that it may not see are left out of values.
func (pc *propertyCollector) read(
	ctx *simulator.Context, sets []types.PropertySpec, refs []moRef,
) ([]types.ObjectContent, types.BaseMethodFault) {
	if len(refs) == 0 {
		return nil, nil
	}
	spec := types.PropertyFilterSpec{PropSet: sets, ReportMissingObjectsInResults: types.NewBool(true)}
	for _, ref := range refs {
		spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: ref})
	}
	answer := pc.PropertyCollector.RetrievePropertiesEx(ctx, &types.RetrievePropertiesEx{
		SpecSet: []types.PropertyFilterSpec{spec},
	})
	if fault := answer.Fault(); fault != nil {
		return nil, fault.VimFault().(types.BaseMethodFault)
	}
	objects := answer.(*methods.RetrievePropertiesExBody).Res.Returnval.Objects
	in, account := instanceOf(ctx), accountOf(ctx)
	for i := range objects {
		for _, missing := range objects[i].MissingSet {
			if invalid, ok := missing.Fault.Fault.(*types.InvalidProperty); ok {
				return nil, invalid // vCenter refuses the whole call
			}
		}
		if in.access.limited(account) {
			in.censor(account, &objects[i])
		}
	}
	return objects, nil
}

func (in *Instance) censor(account string, content *types.ObjectContent) {
	lacking := ""
	for _, privilege := range []string{"System.View", "System.Read"} {
		if lacking == "" && !in.access.allowed(account, content.Obj, privilege) {
			lacking = privilege
		}
	}
	if lacking != "" {
		for _, property := range content.PropSet {
			content.MissingSet = append(content.MissingSet, types.MissingProperty{
				Path:  property.Name,
				Fault: types.LocalizedMethodFault{Fault: denied(content.Obj, lacking)},
			})
		}
		content.PropSet = nil
		return
	}
	for _, property := range content.PropSet {
		if list, ok := property.Val.(*types.ArrayOfManagedObjectReference); ok {
			var kept []moRef
			for _, ref := range list.ManagedObjectReference {
				if in.access.visible(account, ref) {
					kept = append(kept, ref)
				}
			}
			list.ManagedObjectReference = kept
		}
	}
}
