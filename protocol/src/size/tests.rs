//! Tests of sizes and counts: every bound from both sides, and nothing rounded.
use super::*;

#[test]
fn memory_is_whole_mib_within_its_bounds() {
    for good in [16 << 20, 17 << 20, 16 << 40] {
        assert_eq!(MemoryBytes::new(good).unwrap().get(), good);
    }
    for (bad, reason) in [
        (0, "the least is 16777216 (16 MiB)"),
        (512, "the unit is bytes"),
        ((16 << 20) - 1, "the least is 16777216 (16 MiB)"),
        ((16 << 40) + 1, "the most is 17592186044416 (16 TiB)"),
        (u64::MAX, "the most is 17592186044416 (16 TiB)"),
        ((16 << 20) + 1, "a whole number of 1048576 (1 MiB)"),
        ((17 << 20) + 512, "a whole number of 1048576 (1 MiB)"),
        ((17 << 20) + 2048, "a whole number of 1048576 (1 MiB)"),
        ((17 << 20) + (512 << 10), "a whole number of 1048576 (1 MiB)"),
    ] {
        let said = MemoryBytes::new(bad).unwrap_err().to_string();
        assert!(said.starts_with(&format!("memory size {bad} is not valid: ")) && said.contains(reason), "{said}");
    }
    assert_eq!(MemoryBytes::new(512 << 20).unwrap().kib(), 524_288);
    assert_eq!((limits::MEMORY_MIN, limits::MEMORY_MAX), (16_777_216, 17_592_186_044_416));
}

#[test]
fn a_disk_is_whole_sectors_within_its_bounds() {
    for good in [1 << 20, (1 << 20) + 512, 64 << 40] {
        assert_eq!(DiskBytes::new(good).unwrap().get(), good);
    }
    for (bad, reason) in [
        (0, "the least is 1048576 (1 MiB)"),
        (50, "the unit is bytes"),
        ((1 << 20) - 512, "the least is 1048576 (1 MiB)"),
        ((64 << 40) + 512, "the most is 70368744177664 (64 TiB)"),
        (u64::MAX, "the most is 70368744177664 (64 TiB)"),
        ((1 << 20) + 1, "a whole number of 512-byte sectors"),
        ((1 << 20) + 511, "a whole number of 512-byte sectors"),
    ] {
        let said = DiskBytes::new(bad).unwrap_err().to_string();
        assert!(said.starts_with(&format!("disk size {bad} is not valid: ")) && said.contains(reason), "{said}");
    }
    assert_eq!((limits::DISK_MIN, limits::DISK_MAX), (1_048_576, 70_368_744_177_664));
}

#[test]
fn vcpus_are_1_to_255() {
    for good in [1, 2, 255_u32] {
        assert_eq!(Vcpus::new(u64::from(good)).unwrap().get(), good);
    }
    for bad in [0, 256, (1 << 32) + 1, u64::MAX] {
        let said = Vcpus::new(bad).unwrap_err().to_string();
        assert_eq!(said, format!("vCPU count {bad} is not valid: use 1 to 255"));
    }
}

#[test]
fn numbers_go_through_the_same_constructor_everywhere() {
    let memory = MemoryBytes::new(512 << 20).unwrap();
    assert_eq!(memory.to_string(), "536870912");
    assert_eq!(u64::from(memory), 536_870_912);
    assert_eq!(MemoryBytes::try_from(536_870_912).unwrap(), memory);
    assert_eq!(MemoryBytes::known(536_870_912), memory);
    assert_eq!(serde_json::to_string(&memory).unwrap(), "536870912");
    assert_eq!(serde_json::from_str::<MemoryBytes>("536870912").unwrap(), memory);
    let disk = DiskBytes::new(10 << 30).unwrap();
    assert_eq!((disk.to_string(), u64::from(disk)), ("10737418240".to_owned(), 10_737_418_240));
    assert_eq!(DiskBytes::known(10 << 30), disk);
    assert_eq!(serde_json::from_str::<DiskBytes>("10737418240").unwrap(), disk);
    let vcpus = Vcpus::new(2).unwrap();
    assert_eq!((vcpus.to_string(), u64::from(vcpus)), ("2".to_owned(), 2));
    assert_eq!(serde_json::from_str::<Vcpus>("2").unwrap(), vcpus);
}

#[test]
fn unit_slips_are_refused_from_json() {
    for bad in ["50", "-536870912", "5.36870912e8", "1e30", "\"512 MiB\"", "\"536870912\"", "null", "true"] {
        serde_json::from_str::<MemoryBytes>(bad).expect_err(bad);
        serde_json::from_str::<DiskBytes>(bad).expect_err(bad);
    }
    for bad in ["0", "256", "-1", "1.0", "\"2\""] {
        serde_json::from_str::<Vcpus>(bad).expect_err(bad);
    }
}
