use super::*;

fn snapshot(name: &str, kind: vk::PhysicalDeviceType) -> Snapshot {
    use vk::MemoryPropertyFlags as M;
    Snapshot {
        name: name.to_owned(),
        device_type: kind,
        vendor_id: 0,
        device_id: 0,
        uuid: [7; 16],
        api_version: vk::API_VERSION_1_3,
        driver_version: 1,
        driver_name: String::new(),
        driver_info: String::new(),
        pci: None,
        extensions: vec!["VK_KHR_push_descriptor".to_owned()],
        queue_families: vec![
            QueueFamily {
                flags: vk::QueueFlags::TRANSFER,
                count: 2,
                timestamp_valid_bits: 0,
            },
            QueueFamily {
                flags: vk::QueueFlags::GRAPHICS
                    | vk::QueueFlags::COMPUTE
                    | vk::QueueFlags::TRANSFER,
                count: 16,
                timestamp_valid_bits: 64,
            },
        ],
        memory_types: [
            (M::empty(), 1),
            (M::DEVICE_LOCAL, 0),
            (M::HOST_VISIBLE | M::HOST_COHERENT, 1),
            (M::HOST_VISIBLE | M::HOST_COHERENT | M::HOST_CACHED, 1),
            (M::DEVICE_LOCAL | M::HOST_VISIBLE | M::HOST_COHERENT, 0),
        ]
        .into_iter()
        .map(|(flags, heap)| MemoryType { flags, heap })
        .collect(),
        memory_heaps: vec![
            MemoryHeap {
                size: 140 << 30,
                device_local: true,
                budget: None,
            },
            MemoryHeap {
                size: 64 << 30,
                device_local: false,
                budget: None,
            },
        ],
        features: Features {
            timeline_semaphore: true,
            buffer_device_address: true,
            ..Features::default()
        },
        limits: vk::PhysicalDeviceLimits::default(),
        subgroup: Subgroup::default(),
        coop_shapes: Vec::new(),
        flexible_shapes: Vec::new(),
        coop2_max_shared: 0,
        max_push_descriptors: 32,
        max_allocation_size: 1 << 32,
        max_buffer_size: 1 << 40,
        multiprocessors: 0,
        float_controls: [vk::FALSE; 3],
        compute_capability: None,
    }
}

fn shape(m: u32, n: u32, k: u32, c: i32) -> CoopShape {
    CoopShape {
        m,
        n,
        k,
        a: FLOAT16,
        b: FLOAT16,
        c,
        result: c,
        saturating: false,
        scope: SCOPE_SUBGROUP,
    }
}

#[test]
fn prefers_discrete_then_integrated_then_virtual_then_cpu() {
    use vk::PhysicalDeviceType as T;
    let mut list = vec![
        snapshot("cpu", T::CPU),
        snapshot("virtual", T::VIRTUAL_GPU),
        snapshot("integrated", T::INTEGRATED_GPU),
        snapshot("discrete", T::DISCRETE_GPU),
    ];
    for expected in ["discrete", "integrated", "virtual", "cpu"] {
        let plan = choose(&list, &Config::default()).unwrap();
        assert_eq!(list[plan.device].name, expected);
        list.remove(plan.device);
    }
    assert!(matches!(
        choose(&list, &Config::default()),
        Err(Error::NoDevice(_))
    ));
}

#[test]
fn unusable_devices_are_passed_over_and_named() {
    use vk::PhysicalDeviceType as T;
    let mut old = snapshot("old card", T::DISCRETE_GPU);
    old.api_version = vk::API_VERSION_1_1;
    let list = [old.clone(), snapshot("cpu", T::CPU)];
    assert_eq!(choose(&list, &Config::default()).unwrap().device, 1);
    let error = choose(&[old], &Config::default()).unwrap_err().to_string();
    assert!(
        error.contains("old card") && error.contains("1.2 is needed"),
        "{error}"
    );
}

/// The devices of `facts.json`, whose kernels `__test__/devices` holds against their limits: names, types, versions and matrices.
fn known_devices() -> Vec<Snapshot> {
    let text = include_str!("../../../__test__/devices/facts.json");
    let known: serde_json::Value = serde_json::from_str(text).unwrap();
    let known_device = |(name, device): (&String, &serde_json::Value)| {
        let driver = device["driver"].as_str().unwrap_or_default();
        let groups = [&known["drivers"][driver], &device["facts"]];
        let all = || groups.iter().filter_map(|group| group.as_array()).flatten();
        // The last one holds, and those of the driver come first.
        let fact = |what: &str| {
            all()
                .filter_map(|facts| facts.get(what))
                .next_back()
                .unwrap()
        };
        let kind = fact("deviceType").as_i64().unwrap();
        let mut made = snapshot(name, vk::PhysicalDeviceType::from_raw(kind as i32));
        let minor = fact("apiVersion")
            .as_str()
            .unwrap()
            .strip_prefix("1.")
            .unwrap();
        made.api_version = vk::make_api_version(0, 1, minor.parse().unwrap(), 0);
        // Each source lists some.
        let matrices = all()
            .filter_map(|facts| facts.get("matrices")?.as_array())
            .flatten();
        made.coop_shapes = matrices
            .filter(|listed| listed[3] == "f16")
            .map(|listed| {
                let side = |i: usize| listed[i].as_u64().unwrap() as u32;
                shape(side(0), side(1), side(2), FLOAT32)
            })
            .collect();
        made
    };
    let devices = known["devices"].as_object().unwrap();
    devices.iter().map(known_device).collect()
}

#[test]
fn of_known_devices_a_discrete_one_is_chosen_before_an_integrated_one_in_any_order() {
    use vk::PhysicalDeviceType as T;
    let known = known_devices();
    assert_eq!(known.len(), 15);
    let cpu = snapshot("llvmpipe", T::CPU);
    let chosen = |list: [&Snapshot; 3]| {
        let list = list.map(Clone::clone);
        let plan = choose(&list, &Config::default()).unwrap();
        list[plan.device].name.clone()
    };
    for first in &known {
        for second in &known {
            let usable: Vec<_> = [first, second]
                .into_iter()
                .filter(|device| device.name != "Mali on Android 12")
                .collect();
            let discrete = usable.iter().find(|d| d.device_type == T::DISCRETE_GPU);
            let expected = discrete.or(usable.first()).copied().unwrap_or(&cpu);
            assert_eq!(chosen([&cpu, first, second]), expected.name);
            assert_eq!(chosen([first, second, &cpu]), expected.name);
        }
    }
}

#[test]
fn known_devices_multiply_by_the_largest_matrices_of_halves_that_they_list() {
    for device in known_devices() {
        let name = device.name.clone();
        let expected = match name.split(' ').next().unwrap() {
            "RTX" | "RX" | "L4" | "A100" | "H100" => Some((16, 16, 16)),
            "Arc" => Some((8, 16, 16)),
            "Iris" => Some((8, 8, 16)),
            _ => None,
        };
        match choose(&[device], &Config::default()) {
            Ok(plan) => assert_eq!(plan.coop_tile, expected, "{name}"),
            Err(error) => assert!(error.to_string().contains("Mali on Android 12"), "{error}"),
        }
    }
}

#[test]
fn a_selector_is_an_index_a_uuid_a_pci_address_or_part_of_a_name() {
    use vk::PhysicalDeviceType as T;
    let mut second = snapshot("NVIDIA H200", T::DISCRETE_GPU);
    second.uuid = [0xab; 16];
    second.pci = Some("0000:3b:00.0".to_owned());
    let list = [snapshot("llvmpipe", T::CPU), second];
    let with = |selector: &str| {
        choose(
            &list,
            &Config {
                device: Some(selector.to_owned()),
                ..Config::default()
            },
        )
        .map(|p| p.device)
    };
    assert_eq!(with("0").unwrap(), 0);
    assert_eq!(with("1").unwrap(), 1);
    assert_eq!(with("h200").unwrap(), 1);
    assert_eq!(with("pipe").unwrap(), 0);
    assert_eq!(with("3B:00.0").unwrap(), 1);
    assert_eq!(with("0000:3b:00.0").unwrap(), 1);
    assert_eq!(with("abababab-abab-abab-abab-abababababab").unwrap(), 1);
    assert_eq!(with("").unwrap(), 1);
    let error = with("radeon").unwrap_err().to_string();
    assert!(
        error.contains("radeon") && error.contains("llvmpipe"),
        "{error}"
    );
    assert!(with("2").is_err());
}

#[test]
fn memory_types_and_queue_of_a_card() {
    let list = [snapshot("card", vk::PhysicalDeviceType::DISCRETE_GPU)];
    let plan = choose(&list, &Config::default()).unwrap();
    assert_eq!(plan.queue_family, 1);
    assert!(plan.transfer_family);
    assert_eq!(
        (
            plan.device_memory,
            plan.visible_memory,
            plan.upload_memory,
            plan.readback_memory
        ),
        (1, 4, 2, 3)
    );
    let mut small = list[0].clone();
    small.memory_types[4].heap = 2;
    small.memory_heaps.push(MemoryHeap {
        size: 256 << 20,
        device_local: true,
        budget: None,
    });
    assert_eq!(
        choose(&[small], &Config::default()).unwrap().visible_memory,
        2
    );
}

#[test]
fn push_descriptors_follow_device_and_selector() {
    let mut list = [snapshot("card", vk::PhysicalDeviceType::DISCRETE_GPU)];
    assert!(choose(&list, &Config::default()).unwrap().push_descriptors);
    let off = Config {
        no_push_descriptors: true,
        ..Config::default()
    };
    assert!(!choose(&list, &off).unwrap().push_descriptors);
    list[0].extensions.clear();
    assert!(!choose(&list, &Config::default()).unwrap().push_descriptors);
}

#[test]
fn safe_mode_takes_the_stronger_robustness_and_refuses_devices_without_any() {
    let mut card = snapshot("card", vk::PhysicalDeviceType::DISCRETE_GPU);
    card.coop_shapes = vec![shape(16, 16, 16, FLOAT32)];
    let safe = Config {
        safe: true,
        ..Config::default()
    };
    let plan = |card: &Snapshot, config: &Config| choose(std::slice::from_ref(card), config);
    assert_eq!(plan(&card, &Config::default()).unwrap().safe, None);
    let refused = |card: &Snapshot| match plan(card, &safe) {
        Err(Error::Unsupported(what)) => what,
        other => panic!("{other:?}"),
    };
    assert!(refused(&card).contains("shaderZeroInitializeWorkgroupMemory"));
    card.features.zeroed_workgroup_memory = true;
    assert!(refused(&card).contains("robustBufferAccess2 or robustBufferAccess"));
    card.features.robust_access = true;
    let own_buffers = plan(&card, &safe).unwrap();
    assert_eq!(own_buffers.safe, Some(Isolation::Buffer));
    assert!(!own_buffers.device_address && own_buffers.coop_tile.is_none());
    card.features.robust_access2 = true;
    assert_eq!(plan(&card, &safe).unwrap().safe, Some(Isolation::Range));
}

#[test]
fn every_device_is_told_why_it_would_be_chosen_or_not() {
    let mut list = [
        snapshot("software", vk::PhysicalDeviceType::CPU),
        snapshot("card", vk::PhysicalDeviceType::DISCRETE_GPU),
        snapshot("card", vk::PhysicalDeviceType::DISCRETE_GPU),
        snapshot("old card", vk::PhysicalDeviceType::DISCRETE_GPU),
    ];
    list[3].features.timeline_semaphore = false;
    let all = choices(&list, None);
    assert_eq!(
        all.iter().map(|(chosen, _)| *chosen).collect::<Vec<_>>(),
        [false, true, false, false]
    );
    assert!(all[0].1.contains("device 1 is discrete"));
    assert!(all[1].1.contains("first discrete"));
    assert!(all[2].1.contains("comes first"));
    assert!(all[3].1.contains("no timeline semaphores"));
    let named = choices(&list, Some("0"));
    assert!(named[0].0 && named[0].1.contains("HELIOS_DEVICE=0 names it"));
    assert!(!named[1].0 && named[1].1.contains("names another"));
    assert!(
        choices(&list, Some("none such"))
            .iter()
            .all(|(chosen, _)| !chosen)
    );
}

#[test]
fn the_largest_f16_to_f32_tile_wins_and_a_selector_must_be_listed() {
    let mut card = snapshot("card", vk::PhysicalDeviceType::DISCRETE_GPU);
    card.coop_shapes = vec![
        shape(16, 16, 16, FLOAT16),
        shape(16, 8, 8, FLOAT32),
        shape(16, 8, 16, FLOAT32),
        shape(16, 16, 16, FLOAT32),
    ];
    let tile = |coop_tile: Option<CoopTile>| {
        let config = Config {
            coop_tile,
            ..Config::default()
        };
        let plan = choose(std::slice::from_ref(&card), &config).unwrap();
        plan.coop_tile
    };
    let shape = CoopTile::Shape;
    assert_eq!(tile(None), Some((16, 16, 16)));
    assert_eq!(tile(Some(shape(16, 8, 16))), Some((16, 8, 16)));
    assert_eq!(tile(Some(shape(64, 64, 64))), Some((16, 16, 16)));
    assert_eq!(tile(Some(CoopTile::None)), None);
}

#[test]
fn ptx_runs_by_the_documented_extension_where_there_are_both() {
    let of = |extensions: &[&str], feature, config: &Config| {
        let mut s = snapshot("card", vk::PhysicalDeviceType::DISCRETE_GPU);
        s.extensions = extensions.iter().map(|&name| name.to_owned()).collect();
        s.features.cuda_kernel_launch = feature;
        s.features.buffer_device_address = true;
        s.features.robust_access2 = true;
        s.features.zeroed_workgroup_memory = true;
        choose(&[s], config).unwrap().ptx
    };
    let (nv, nvx) = ("VK_NV_cuda_kernel_launch", "VK_NVX_binary_import");
    let plain = Config::default();
    assert_eq!(of(&[nvx, nv], true, &plain), Ok(Extension::KernelLaunch));
    assert_eq!(of(&[nvx, nv], false, &plain), Ok(Extension::BinaryImport));
    assert!(of(&[nv], false, &plain).unwrap_err().contains("card"));
    let off = Config {
        ptx: Some(false),
        ..Config::default()
    };
    assert!(of(&[nv], true, &off).unwrap_err().contains("HELIOS_PTX"));
    let safe = Config {
        safe: true,
        ..Config::default()
    };
    assert!(of(&[nv], true, &safe).unwrap_err().contains("safe mode"));
}
