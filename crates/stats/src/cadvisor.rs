//! `/metrics/cadvisor`: every cgroup of the node, its pods and their containers, and the machine, under cAdvisor's names.
//!
//! Metrics come by name, and the samples of each by their labels, as the Go library orders them.

mod families;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crablet_metrics::{Kind, Page, push_label};
use jiff::Timestamp;

use crate::cadvisor::families::{Family, PLAIN, Source, TRAFFIC};
use crate::cgroup::DiskUse;
use crate::file_systems::FileSystem;
use crate::machine::MachineFacts;
use crate::runtime::{ListedContainer, ListedPod};
use crate::snapshot::Group;
use crate::view::View;

/// About what a cgroup takes on the page.
const BYTES_PER_ROW: usize = 14_000;

/// A cgroup with its labels, in the pieces between which a metric's own labels go.
pub(super) struct Row<'a> {
    group: &'a Group,
    container_name: &'a str,
    container: String,
    id_and_image: String,
    name_and_namespace: String,
    pod: String,
    /// All of them, with their braces.
    all: String,
    /// The time of its samples, and the end of their lines.
    end: String,
    is_root: bool,
    milliseconds: i64,
}

impl<'a> Row<'a> {
    fn new(group: &'a Group, [container, image, name, namespace, pod]: [&'a str; 5]) -> Row<'a> {
        let label = |pairs: &[(&str, &str)]| {
            let mut text = String::with_capacity(96);
            pairs.iter().for_each(|(name, value)| push_label(&mut text, name, value));
            text
        };
        let milliseconds = group.sample.time.as_millisecond();
        let container_name = container;
        let container = label(&[("container", container)]);
        let id_and_image = label(&[("id", &group.path), ("image", image)]);
        let name_and_namespace = label(&[("name", name), ("namespace", namespace)]);
        let pod = label(&[("pod", pod)]);
        Row {
            group,
            container_name,
            all: format!("{{{container},{id_and_image},{name_and_namespace},{pod}}}"),
            end: format!(" {milliseconds}\n"),
            container,
            id_and_image,
            name_and_namespace,
            pod,
            is_root: false,
            milliseconds,
        }
    }

    /// Writes a sample, with labels of the metric's own after that of the container, after the image and at the end.
    fn write(&self, page: &mut Page, [first, middle, last]: [&str; 3], value: f64) {
        let (id, name) = (&*self.id_and_image, &*self.name_and_namespace);
        let labels = [&*self.container, first, id, middle, name, &self.pod, last];
        page.sample(&labels, value, Some(self.milliseconds));
    }
}

/// The page. `images` are those of containers, by the runtime's names; without a view only what is known of the machine
/// is told, and that there was an error.
pub(crate) fn cadvisor_page(
    view: Option<&View>,
    machine: &MachineFacts,
    images: &HashMap<String, String>,
    has_pressure: bool,
    sys: &Path,
    now: Timestamp,
) -> String {
    let rows = view.map(|view| rows(view, images)).unwrap_or_default();
    let walk = view.map(|view| &*view.walk);
    let mut page = Page::with_capacity(8_192 + rows.len() * BYTES_PER_ROW);
    machine.write_version(&mut page);
    let file_systems = walk.map_or(&[][..], |walk| &walk.snapshot.file_systems);
    let devices = Devices::new(&rows, file_systems, sys);
    for family in &PLAIN {
        if family.needs_pressure && !has_pressure {
            continue;
        }
        match family.source {
            Source::Scrape => {
                page.family(family.name, family.help, family.kind);
                page.sample(&[], if walk.is_some() { 0.0 } else { 1.0 }, None);
            }
            Source::Value(value) => {
                page.family(family.name, family.help, family.kind);
                for row in &rows {
                    if let Some(value) = value(row.group) {
                        page.line(&row.all, value, &row.end);
                    }
                }
            }
            Source::Limit(value) => {
                page.family(family.name, family.help, family.kind);
                for row in &rows {
                    if let Some(value) = value(row.group) {
                        page.line(&row.all, value, "\n");
                    }
                }
            }
            Source::LastSeen => last_seen(&mut page, family, &rows, now),
            Source::Usage => usage(&mut page, family, &rows),
            Source::Failures => failures(&mut page, family, &rows),
            Source::Tasks => tasks(&mut page, family, &rows),
            Source::OpenFiles => open_files(&mut page, family, &rows),
            Source::Network => network(&mut page, &rows),
            Source::Blkio => blkio(&mut page, family, &rows, &devices),
            Source::Disk(of_disk, of_file_system) => {
                page.family(family.name, family.help, family.kind);
                devices.each(&rows, of_disk.is_some(), |row, label, told| {
                    // As upstream: what the cgroup's disks did comes first, and nothing is told twice.
                    let of_disk = of_disk.zip(told.disk).map(|(value, disk)| value(disk));
                    let of_file_system = of_file_system.zip(told.file_system);
                    let value = of_disk.or_else(|| of_file_system.map(|(value, known)| value(known)));
                    if let Some(value) = value {
                        row.write(&mut page, [label, "", ""], value);
                    }
                });
            }
        }
    }
    machine.write(&mut page, walk.map_or_else(|| machine.memory(), |walk| walk.snapshot.memory));
    page.into_text()
}

/// All cgroups, by the names of their containers, then by their own.
fn rows<'a>(view: &'a View, images: &'a HashMap<String, String>) -> Vec<Row<'a>> {
    let snapshot = &view.walk.snapshot;
    let by_uid: HashMap<&str, &ListedPod> = view.listing.all().map(|pod| (&*pod.uid, pod)).collect();
    let mut by_id: HashMap<&str, (&ListedPod, Option<&ListedContainer>)> = HashMap::new();
    for pod in view.listing.all() {
        by_id.insert(&pod.sandbox, (pod, None));
        by_id.extend(pod.containers.iter().chain(&pod.idle).map(|known| (&*known.id, (pod, Some(known)))));
    }
    let mut rows = vec![Row { is_root: true, ..Row::new(&snapshot.root, [""; 5]) }];
    let own = snapshot.system.iter().map(|(_, group)| group).chain(&snapshot.levels);
    rows.extend(own.map(|group| Row::new(group, [""; 5])));
    for (uid, pod) in &snapshot.pods {
        let (namespace, name) = by_uid.get(&**uid).map_or(("", ""), |pod| (&*pod.namespace, &*pod.name));
        rows.push(Row::new(&pod.group, ["", "", "", namespace, name]));
        for (id, group) in &pod.children {
            let labels = by_id.get(&**id).map_or([""; 5], |(pod, container)| {
                let (container, image) = container.map_or(("", ""), |known| (&*known.name, &*known.image));
                [container, images.get(id).map_or(image, |image| image), id, &pod.namespace, &pod.name]
            });
            rows.push(Row::new(group, labels));
        }
    }
    rows.sort_by(|a, b| (a.container_name, &a.group.path).cmp(&(b.container_name, &b.group.path)));
    // A system's cgroup may be the root.
    rows.dedup_by(|a, b| a.group.path == b.group.path && a.container_name == b.container_name);
    rows
}

fn last_seen(page: &mut Page, family: &Family, rows: &[Row<'_>], now: Timestamp) {
    page.family(family.name, family.help, family.kind);
    let end = format!(" {}\n", now.as_millisecond());
    for row in rows {
        page.line(&row.all, now.as_second() as f64, &end);
    }
}

fn usage(page: &mut Page, family: &Family, rows: &[Row<'_>]) {
    page.family(family.name, family.help, family.kind);
    for row in rows {
        let usage = row.group.sample.cpu.as_ref().map_or(0, |cpu| cpu.usage);
        if usage > 0 {
            row.write(page, ["cpu=\"total\"", "", ""], usage as f64 / 1e9);
        }
    }
}

fn failures(page: &mut Page, family: &Family, rows: &[Row<'_>]) {
    page.family(family.name, family.help, family.kind);
    for alike in rows.chunk_by(|a, b| a.container_name == b.container_name) {
        for (kind, is_major) in [("failure_type=\"pgfault\"", false), ("failure_type=\"pgmajfault\"", true)] {
            for row in alike {
                let memory = row.group.sample.memory.as_ref();
                let count = memory.map_or(0, |memory| match is_major {
                    true => memory.major_page_faults,
                    false => memory.page_faults,
                });
                for scope in ["scope=\"container\"", "scope=\"hierarchy\""] {
                    row.write(page, [kind, "", scope], count as f64);
                }
            }
        }
    }
}

/// Nobody counts them: that would need a look at each thread, all the time. They are there because they are upstream.
fn tasks(page: &mut Page, family: &Family, rows: &[Row<'_>]) {
    const STATES: [&str; 5] = [
        "state=\"iowaiting\"",
        "state=\"running\"",
        "state=\"sleeping\"",
        "state=\"stopped\"",
        "state=\"uninterruptible\"",
    ];
    page.family(family.name, family.help, family.kind);
    for row in rows {
        STATES.iter().for_each(|state| row.write(page, ["", "", state], 0.0));
    }
}

fn open_files(page: &mut Page, family: &Family, rows: &[Row<'_>]) {
    page.family(family.name, family.help, family.kind);
    for row in rows {
        if let Some(limit) = row.group.processes.open_files {
            row.write(page, ["", "", "ulimit=\"max_open_files\""], limit as f64);
        }
    }
}

fn network(page: &mut Page, rows: &[Row<'_>]) {
    let mut with_interfaces = Vec::new();
    for row in rows {
        let mut interfaces: Vec<_> = row.group.network.iter().flatten().collect();
        interfaces.sort_by(|a, b| a.name.cmp(&b.name));
        for interface in interfaces {
            let mut label = String::with_capacity(24);
            push_label(&mut label, "interface", &interface.name);
            with_interfaces.push((row, label, interface));
        }
    }
    for (name, help, value) in TRAFFIC {
        page.family(name, help, Kind::Counter);
        for (row, label, interface) in &with_interfaces {
            row.write(page, ["", label, ""], value(interface) as f64);
        }
    }
}

fn blkio(page: &mut Page, family: &Family, rows: &[Row<'_>], devices: &Devices<'_>) {
    page.family(family.name, family.help, family.kind);
    devices.each(rows, true, |row, label, told| {
        let mut disks: Vec<&DiskUse> = told.disk.into_iter().chain(told.more).collect();
        disks.sort_by_cached_key(|disk| (disk.device.0.to_string(), disk.device.1.to_string()));
        for disk in disks {
            let (major, minor) = disk.device;
            let mut numbers = String::with_capacity(24);
            push_label(&mut numbers, "major", &major.to_string());
            push_label(&mut numbers, "minor", &minor.to_string());
            let mut operations: Vec<_> = disk.bytes.iter().collect();
            operations.sort_unstable();
            for (operation, value) in operations {
                let mut own = String::with_capacity(24);
                push_label(&mut own, "operation", operation);
                let (id, name) = (&*row.id_and_image, &*row.name_and_namespace);
                let labels = [&*row.container, label, id, &numbers, name, &own, &row.pod];
                page.sample(&labels, *value as f64, Some(row.milliseconds));
            }
        }
    });
}

/// What is told of a cgroup under one device's name.
#[derive(Default)]
struct DeviceUse<'a> {
    disk: Option<&'a DiskUse>,
    /// Others without a name of their own.
    more: Vec<&'a DiskUse>,
    /// Only of the root.
    file_system: Option<&'a FileSystem>,
}

/// The names of disks, by their numbers.
struct Devices<'a> {
    disks: HashMap<(u32, u32), String>,
    file_systems: &'a [FileSystem],
}

impl<'a> Devices<'a> {
    fn new(rows: &[Row<'_>], file_systems: &'a [FileSystem], sys: &Path) -> Devices<'a> {
        let mut disks = HashMap::new();
        for disk in rows.iter().filter_map(|row| row.group.sample.io.as_ref()).flat_map(|io| &io.disks) {
            disks.entry(disk.device).or_insert_with(|| disk_name(sys, disk.device));
        }
        Devices { disks, file_systems }
    }

    /// The root goes by its file systems first, which on LVM have names that say more.
    fn name(&self, row: &Row<'_>, number: (u32, u32)) -> &str {
        let disk = self.disks.get(&number).filter(|name| !name.is_empty()).map(|name| &**name);
        let mounted = || {
            let at = self.file_systems.iter().find(|known| known.number == number);
            at.map(|known| &*known.device)
        };
        let name = if row.is_root { mounted().or(disk) } else { disk.or_else(mounted) };
        name.unwrap_or_default()
    }

    /// Calls for each cgroup and device in the order of their labels, with the device's label. Without disks only the root
    /// has any.
    fn each<'r>(
        &'r self,
        rows: &'r [Row<'r>],
        with_disks: bool,
        mut with: impl FnMut(&Row<'r>, &str, DeviceUse<'r>),
    ) {
        for alike in rows.chunk_by(|a, b| a.container_name == b.container_name) {
            let mut known: BTreeMap<(&str, usize), DeviceUse<'r>> = BTreeMap::new();
            for (at, row) in alike.iter().enumerate().filter(|(_, row)| with_disks || row.is_root) {
                let io = row.group.sample.io.iter().filter(|_| with_disks);
                for disk in io.flat_map(|io| &io.disks) {
                    let told = known.entry((self.name(row, disk.device), at)).or_default();
                    match told.disk {
                        None => told.disk = Some(disk),
                        Some(_) => told.more.push(disk),
                    }
                }
                for file_system in self.file_systems.iter().filter(|_| row.is_root) {
                    known.entry((&file_system.device, at)).or_default().file_system = Some(file_system);
                }
            }
            let mut label = String::with_capacity(32);
            for ((device, at), told) in known {
                label.clear();
                push_label(&mut label, "device", device);
                with(&alike[at], &label, told);
            }
        }
    }
}

/// What the kernel calls a disk: `/dev/sda`. What is none, such as a file that is mounted, has no name, as upstream has it.
fn disk_name(sys: &Path, (major, minor): (u32, u32)) -> String {
    let text =
        std::fs::read_to_string(sys.join(format!("dev/block/{major}:{minor}/uevent"))).unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let disk = name.filter(|name| !["loop", "ram", "sr"].iter().any(|prefix| name.starts_with(prefix)));
    disk.map(|name| format!("/dev/{name}")).unwrap_or_default()
}
