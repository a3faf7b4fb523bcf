//! What the diff of a relist of 10,000 containers takes. Prints a line for each figure, `name<TAB>value<TAB>limit`, and
//! fails when one is over its limit.

#![allow(clippy::unwrap_used, reason = "nobody but a developer runs this")]

use std::alloc::System;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::ExitCode;

use crablet_cri::observer::{Found, Table};
use crablet_cri_api::{Container, ContainerState, Sandbox, SandboxMetadata, SandboxState};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PODS: usize = 2500;
const CONTAINERS: usize = 10_000;
const CHANGES: usize = 10;
const RUNS: usize = 50;

fn main() -> ExitCode {
    let (sandboxes, containers) = lists();
    let mut table = Table::default();
    let mut found = Found::default();
    relist(&mut table, &sandboxes, &containers, &mut found);
    assert_eq!(found.events.len(), PODS + CONTAINERS);

    let mut unchanged = Vec::new();
    let mut allocations = 0;
    let mut changed = Vec::new();
    for run in 0..RUNS {
        // The lists are fresh each time, as decoded ones are, and so are the caches.
        let (sandboxes, copy) = (sandboxes.clone(), containers.clone());
        let mut found = Found::default();
        let region = Region::new(ALLOCATOR);
        let took = relist(&mut table, &sandboxes, &copy, &mut found);
        let change = region.change();
        allocations += change.allocations + change.reallocations;
        unchanged.push(took);
        assert!(found.events.is_empty() && found.exited.is_empty());

        let mut copy = containers.clone();
        for container in &mut copy[run * CHANGES..(run + 1) * CHANGES] {
            container.state = ContainerState::Exited;
        }
        changed.push(relist(&mut table, &sandboxes, &copy, &mut found));
        assert_eq!(found.exited.len(), CHANGES);
    }
    let figures = [
        ("relist_unchanged_milliseconds", median(&mut unchanged), 10.0),
        ("relist_changed_milliseconds", median(&mut changed), 10.0),
        ("relist_unchanged_allocations", allocations as f64, 0.0),
    ];
    let mut code = ExitCode::SUCCESS;
    for (name, value, limit) in figures {
        println!("{name}\t{value:.3}\t{limit}");
        if value > limit {
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Milliseconds that the diff took.
#[allow(clippy::disallowed_types, reason = "real time is what is measured")]
fn relist(table: &mut Table, sandboxes: &[Sandbox], containers: &[Container], found: &mut Found) -> f64 {
    let start = std::time::Instant::now();
    let began = table.begin();
    table.relist(began, black_box(sandboxes), black_box(containers), found);
    table.end(began);
    start.elapsed().as_secs_f64() * 1e3
}

/// What a runtime with 10,000 containers answers, in no order, as runtimes do.
fn lists() -> (Vec<Sandbox>, Vec<Container>) {
    let labels = |pod: usize| {
        BTreeMap::from([
            ("io.kubernetes.pod.name".to_owned(), format!("pod-{pod}")),
            ("io.kubernetes.pod.namespace".to_owned(), "default".to_owned()),
            ("io.kubernetes.pod.uid".to_owned(), format!("5b1d7f9e-0000-4000-8000-{pod:012}")),
        ])
    };
    let sandboxes = (0..PODS).map(|pod| Sandbox {
        id: id(pod),
        metadata: SandboxMetadata::default(),
        state: SandboxState::Ready,
        created_at: None,
        labels: labels(pod),
        annotations: BTreeMap::new(),
        runtime_handler: String::new(),
    });
    let containers = (0..CONTAINERS).map(|number| {
        let pod = number % PODS;
        Container {
            id: id(PODS + number),
            sandbox_id: id(pod),
            name: "main".to_owned(),
            attempt: 0,
            image: "image".to_owned(),
            image_ref: "image".to_owned(),
            image_id: "image".to_owned(),
            state: ContainerState::Running,
            created_at: None,
            labels: labels(pod),
            annotations: BTreeMap::new(),
        }
    });
    let mut sandboxes: Vec<Sandbox> = sandboxes.collect();
    let mut containers: Vec<Container> = containers.collect();
    sandboxes.sort_by(|a, b| a.id[32..].cmp(&b.id[32..]));
    containers.sort_by(|a, b| a.id[32..].cmp(&b.id[32..]));
    (sandboxes, containers)
}

/// 64 hexadecimal digits that look like chance.
fn id(number: usize) -> String {
    let mut state = number as u64 + 1;
    (0..4)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            format!("{:016x}", state ^ (state >> 29))
        })
        .collect()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
