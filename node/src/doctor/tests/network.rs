//! Bridges that instances may use.
use super::*;

#[test]
fn each_listed_bridge_has_to_be_there_be_one_and_be_up() {
    expect(|f| named(f).bridges[0].1 = Interface::Missing, Level::Fail, "bridges", "no bridge br0");
    expect(|f| named(f).bridges[0].1 = Interface::Other, Level::Fail, "bridges", "br0 is no bridge");
    let remedy =
        expect(|f| named(f).bridges[0].1 = Interface::Bridge { up: false }, Level::Warn, "bridges", "br0 is down");
    assert_eq!(remedy, "ip link set br0 up");
    expect(|f| named(f).bridges.clear(), Level::Warn, "bridges", "no NIC");
    let second = |f: &mut Facts| named(f).bridges.push(("br1".to_owned(), Interface::Missing));
    expect(second, Level::Fail, "bridges", "no bridge br1");
}
