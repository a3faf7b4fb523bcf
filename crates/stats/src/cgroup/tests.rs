use super::*;
use crate::known::Still;

fn write(directory: &Path, files: &[(&str, &str)]) {
    std::fs::create_dir_all(directory).unwrap();
    for (name, text) in files {
        std::fs::write(directory.join(name), text).unwrap();
    }
}

fn read(trees: &Trees, cgroup: &str, depth: Depth, buffer: &mut Buffer) -> Option<Sample> {
    trees.open(cgroup, depth)?.read(depth, Before::default(), buffer)
}

#[test]
fn a_cgroup_of_v2_is_read_with_its_limits_and_pressure() {
    let place = tempfile::tempdir().unwrap();
    let trees = Trees::V2 { mount: place.path().to_owned() };
    let files = [
        (
            "cpu.stat",
            "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 4\nnr_throttled 2\nthrottled_usec 7\n\
             nr_bursts 1\nburst_usec 3\n",
        ),
        ("cpu.max", "50000 100000\n"),
        ("cpu.weight", "79\n"),
        (
            "cpu.pressure",
            "some avg10=1.50 avg60=0.20 avg300=0.01 total=4711\nfull avg10=0 avg60=0 avg300=0 total=12\n",
        ),
        (
            "memory.stat",
            "anon 100\nfile 70\nfile_mapped 9\nactive_file 30\ninactive_file 40\npgfault 5\npgmajfault 1\n",
        ),
        ("memory.current", "200\n"),
        ("memory.peak", "300\n"),
        ("memory.max", "1048576\n"),
        ("memory.swap.max", "max\n"),
        ("memory.swap.current", "8\n"),
        ("memory.min", "16\n"),
        ("memory.events", "low 0\noom 5\noom_kill 8\n"),
        ("memory.events.local", "low 0\noom 1\noom_kill 3\n"),
        ("pids.current", "5\n"),
        ("pids.max", "max\n"),
        ("io.stat", "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=5 dios=6\n"),
        ("io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"),
    ];
    write(&place.path().join("kubepods/burstable/podu/c"), &files);
    let mut buffer = Buffer::default();
    let sample = read(&trees, "/kubepods/burstable/podu/c", Depth::Everything, &mut buffer).unwrap();
    let cpu = sample.cpu.unwrap();
    assert_eq!((cpu.usage, cpu.user, cpu.system), (1_500_000, 1_000_000, 500_000));
    assert_eq!((cpu.periods, cpu.throttled_periods, cpu.throttled), (4, 2, 7_000));
    assert_eq!((cpu.burst_periods, cpu.burst), (1, 3_000));
    assert_eq!((cpu.quota, cpu.period, cpu.shares), (50_000, 100_000, 2_046));
    assert_eq!((cpu.pressure.some.total, cpu.pressure.some.avg10, cpu.pressure.full.total), (4_711, 1.5, 12));
    let memory = sample.memory.unwrap();
    assert_eq!((memory.usage, memory.working_set(), memory.max_usage), (200, 160, 300));
    assert_eq!((memory.rss, memory.cache, memory.swap, memory.mapped_file), (100, 70, 8, 9));
    assert_eq!((memory.limit, memory.swap_limit, memory.reservation), (1_048_576, u64::MAX, 16));
    assert_eq!((memory.page_faults, memory.major_page_faults, memory.oom_kills), (5, 1, 3));
    assert_eq!(sample.threads, (5, 0));
    let disks = sample.io.unwrap().disks;
    let bytes = vec![("Read", 4_096), ("Write", 8_192)];
    let operations = vec![("Read", 1), ("Write", 2)];
    assert_eq!(disks, [DiskUse { device: (8, 0), bytes, operations }], "without what was discarded");
    // Where nothing is counted of disks, how long was waited for them is told all the same.
    std::fs::remove_file(place.path().join("kubepods/burstable/podu/c/io.stat")).unwrap();
    for depth in [Depth::Summary, Depth::Everything] {
        let io = read(&trees, "/kubepods/burstable/podu/c", depth, &mut buffer).unwrap().io.unwrap();
        assert_eq!((io.disks.len(), io.pressure.some.total), (0, 9));
    }
    assert!(read(&trees, "/kubepods/none", Depth::Everything, &mut buffer).is_none());
    assert_eq!(trees.cpu_usage("/kubepods/burstable/podu/c", &mut buffer), Some(1_500_000));
    assert!(!trees.have_pressure());
    write(place.path(), &[("cpu.pressure", "")]);
    assert!(trees.have_pressure());
}

#[test]
fn the_root_of_v2_has_no_current_memory_and_is_counted_as_v1_does() {
    let place = tempfile::tempdir().unwrap();
    let trees = Trees::V2 { mount: place.path().to_owned() };
    write(
        place.path(),
        &[("cpu.stat", "usage_usec 9\n"), ("memory.stat", "anon 100\nfile 70\ninactive_file 20\n")],
    );
    let sample = read(&trees, "/", Depth::CpuAndMemory, &mut Buffer::default()).unwrap();
    let memory = sample.memory.unwrap();
    assert_eq!((memory.usage, memory.working_set()), (170, 150));
    assert!(sample.io.is_none());
}

#[test]
fn the_root_of_v2_is_there_where_the_kernel_counts_no_cpu_for_it() {
    let place = tempfile::tempdir().unwrap();
    let trees = Trees::V2 { mount: place.path().to_owned() };
    write(place.path(), &[("memory.stat", "anon 100\nfile 70\n")]);
    write(&place.path().join("kubepods"), &[("memory.stat", "anon 100\n")]);
    let mut buffer = Buffer::default();
    let sample = read(&trees, "/", Depth::Everything, &mut buffer).unwrap();
    assert_eq!((sample.cpu.unwrap().usage, sample.memory.unwrap().usage), (0, 170));
    assert!(read(&trees, "/kubepods", Depth::Everything, &mut buffer).is_none());
}

#[test]
fn a_cgroup_of_v1_is_read_from_its_trees() {
    let place = tempfile::tempdir().unwrap();
    let at = |tree: &str| place.path().join(tree);
    let trees = Trees::V1 {
        cpu: at("cpu"),
        cpuacct: at("cpuacct"),
        memory: at("memory"),
        pids: Some(at("pids")),
        blkio: Some(at("blkio")),
    };
    let cgroup = "kubepods/podu";
    write(
        &at("cpuacct").join(cgroup),
        &[("cpuacct.usage", "207526131\n"), ("cpuacct.stat", "user 6\nsystem 13\n")],
    );
    write(
        &at("cpu").join(cgroup),
        &[
            ("cpu.shares", "20\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpu.cfs_quota_us", "-1\n"),
            ("cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"),
        ],
    );
    write(
        &at("memory").join(cgroup),
        &[
            (
                "memory.stat",
                "cache 1\nrss 2\npgfault 0\npgmajfault 0\ntotal_cache 278528\ntotal_rss 507904\ntotal_mapped_file 73728\n\
                 total_inactive_file 4096\ntotal_active_file 274432\n",
            ),
            ("memory.usage_in_bytes", "2138112\n"),
            ("memory.max_usage_in_bytes", "4456448\n"),
            ("memory.kmem.usage_in_bytes", "811008\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.memsw.limit_in_bytes", "9223372036854771712\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ],
    );
    write(&at("pids").join(cgroup), &[("pids.current", "5\n"), ("pids.max", "1024\n")]);
    let bytes = "8:0 Read 4096\n8:0 Write 12\n8:0 Total 4108\nTotal 4108\n";
    write(
        &at("blkio").join(cgroup),
        &[("blkio.throttle.io_service_bytes", bytes), ("blkio.throttle.io_serviced", "8:0 Read 1\n")],
    );
    let mut buffer = Buffer::default();
    let sample = read(&trees, "/kubepods/podu", Depth::Everything, &mut buffer).unwrap();
    let cpu = sample.cpu.unwrap();
    assert_eq!((cpu.usage, cpu.user, cpu.system), (207_526_131, 60_000_000, 130_000_000));
    assert_eq!((cpu.shares, cpu.period, cpu.quota), (20, 100_000, 0));
    let memory = sample.memory.unwrap();
    assert_eq!((memory.usage, memory.working_set(), memory.rss), (2_138_112, 2_134_016, 507_904));
    assert_eq!((memory.cache, memory.kernel, memory.oom_kills), (278_528, 811_008, 2));
    assert!(memory.limit > 1 << 62 && memory.swap_limit > 1 << 62);
    assert_eq!(sample.threads, (5, 1_024));
    let disks = sample.io.unwrap().disks;
    assert_eq!(disks[0].bytes, [("Read", 4_096), ("Write", 12), ("Total", 4_108)]);
    assert_eq!(disks.len(), 1);
    // It is the same by way of the one above, and with limits that are known.
    for depth in [Depth::CpuAndMemory, Depth::Summary, Depth::Everything] {
        let expected = read(&trees, "/kubepods/podu", depth, &mut buffer).unwrap();
        let above = trees.open("/kubepods", depth).unwrap();
        assert_eq!(above.names(9, &mut buffer), ["podu"]);
        let cgroup = above.below("podu", depth).unwrap();
        assert_eq!(cgroup.read(depth, Before::default(), &mut buffer).as_ref(), Some(&expected));
        let limits = Some(Limits { memory: 7, ..expected.limits() });
        let told = cgroup.read(depth, Before { limits, ..Before::default() }, &mut buffer).unwrap();
        assert_eq!(told.memory.unwrap().limit, 7);
        let none = above.below("none", depth).unwrap();
        assert!(none.read(depth, Before::default(), &mut buffer).is_none());
    }
    // What a summary shows needs neither ticks nor disks.
    let sample = read(&trees, "/kubepods/podu", Depth::Summary, &mut buffer).unwrap();
    assert_eq!((sample.cpu.unwrap().user, sample.io.unwrap().disks.len()), (0, 0));
    assert!(read(&trees, "/kubepods/other", Depth::Summary, &mut buffer).is_none());
}

/// Trees of both versions with one cgroup in them, `/a`.
fn both() -> (tempfile::TempDir, [Trees; 2]) {
    let place = tempfile::tempdir().unwrap();
    let at = |tree: &str| place.path().join("v1").join(tree);
    let v1 = Trees::V1 {
        cpu: at("cpu"),
        cpuacct: at("cpuacct"),
        memory: at("memory"),
        pids: Some(at("pids")),
        blkio: Some(at("blkio")),
    };
    let v2 = Trees::V2 { mount: place.path().join("v2") };
    write(&at("cpuacct/a"), &[("cpuacct.usage", "5000\n"), ("cpuacct.stat", "user 6\nsystem 13\n")]);
    write(&at("cpu/a"), &[]);
    write(
        &at("memory/a"),
        &[
            ("memory.usage_in_bytes", "9\n"),
            ("memory.max_usage_in_bytes", "10\n"),
            ("memory.failcnt", "11\n"),
            ("memory.kmem.usage_in_bytes", "2\n"),
            ("memory.oom_control", "oom_kill 12\n"),
        ],
    );
    write(&at("pids/a"), &[("pids.current", "13\n")]);
    write(&at("blkio/a"), &[]);
    write(
        &place.path().join("v2/a"),
        &[
            ("cpu.stat", "usage_usec 5\nuser_usec 3\nsystem_usec 2\n"),
            ("memory.stat", "anon 1\n"),
            ("memory.current", "9\n"),
            ("memory.peak", "10\n"),
            ("memory.events.local", "oom_kill 12\n"),
            ("pids.current", "13\n"),
        ],
    );
    (place, [v1, v2])
}

#[test]
fn what_only_a_process_changes_is_not_read_again_while_none_ran() {
    let (_place, trees) = both();
    for trees in trees {
        let mut buffer = Buffer::default();
        let mut read = |before| {
            let sample = trees.open("/a", Depth::Everything).unwrap();
            let sample = sample.read(Depth::Everything, before, &mut buffer).unwrap();
            let (cpu, memory) = (sample.cpu.unwrap(), sample.memory.unwrap());
            (sample.is_still, cpu.usage, cpu.user, memory.max_usage, memory.oom_kills, sample.threads.0)
        };
        let user = match &trees {
            Trees::V1 { .. } => 60_000_000,
            Trees::V2 { .. } => 3_000,
        };
        let now = (false, 5_000, user, 10, 12, 13);
        assert_eq!(read(Before::default()), now);
        let still = |usage| Still {
            cpu: Cpu { usage, user: 1, ..Cpu::default() },
            max_memory: 8,
            oom_kills: 3,
            threads: 4,
            ..Still::default()
        };
        let (still, ran) = (still(5_000), still(4_000));
        // More than it had at the most is a new most.
        // The file that says how much v2 used says by whom, too.
        let known_user = if matches!(&trees, Trees::V1 { .. }) { 1 } else { user };
        let known = (true, 5_000, known_user, 9, 3, 4);
        assert_eq!(read(Before { still: Some(&still), ..Before::default() }), known);
        assert_eq!(read(Before { still: Some(&ran), ..Before::default() }), now, "somebody ran");
        // Where nobody ran in the one above, nobody did in this one, and that is not read either.
        let before = Before { still: Some(&ran), is_above_still: true, ..Before::default() };
        assert_eq!(read(before), (true, 4_000, 1, 9, 3, 4));
        assert_eq!(read(Before { still: None, ..before }), now);
        // That says nothing of one that is not there any more.
        let gone = trees.open("/", Depth::Everything).unwrap().below("none", Depth::Everything);
        let sample = gone.and_then(|gone| gone.read(Depth::Everything, before, &mut buffer));
        assert!(sample.is_none(), "{sample:?}");
    }
}
