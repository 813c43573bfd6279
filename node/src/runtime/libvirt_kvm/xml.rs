//! Reads what the list of foreign domains shows out of a domain's XML.
//!
//! Room: `node`. The XML is libvirt's own rendering, but a foreign domain's author chose much of it: what is not as
//! expected is left out, and nothing here decides anything.
use crate::runtime::Details;
use roxmltree::{Document, Node};

/// Reads a domain's XML; what cannot be read is empty.
pub(super) fn read(text: &str) -> Details {
    let Ok(document) = Document::parse(text) else {
        return Details::default();
    };
    let domain = document.root_element();
    Details {
        vcpus: child(domain, "vcpu").and_then(|n| n.text()).and_then(|t| t.trim().parse().ok()),
        memory_bytes: child(domain, "memory").and_then(memory),
    }
}

fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|n| n.has_tag_name(name))
}

/// libvirt writes memory in KiB, but says so in an attribute.
fn memory(node: Node<'_, '_>) -> Option<u64> {
    let unit = match node.attribute("unit").unwrap_or("KiB") {
        "b" | "bytes" => 1,
        "KiB" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        _ => return None,
    };
    node.text()?.trim().parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_read_from_their_own_elements() {
        let xml = "<domain type='kvm'><name>other</name><metadata><vcpu>9</vcpu></metadata>\
            <memory unit='KiB'>1048576</memory><currentMemory unit='KiB'>4</currentMemory><vcpu>3</vcpu></domain>";
        assert_eq!(read(xml), Details { vcpus: Some(3), memory_bytes: Some(1 << 30) });
    }

    #[test]
    fn what_is_not_as_libvirt_writes_it_is_left_out() {
        let of = |memory: &str| read(&format!("<domain>{memory}<vcpu>many</vcpu></domain>"));
        assert_eq!(of("<memory unit='GiB'>2</memory>").memory_bytes, Some(2 << 30));
        assert_eq!(of("<memory>5</memory>").memory_bytes, Some(5 << 10));
        for wrong in
            ["<memory unit='pages'>5</memory>", "<memory>-5</memory>", "<memory unit='GiB'>99999999999</memory>"]
        {
            assert_eq!(of(wrong), Details::default(), "{wrong}");
        }
        assert_eq!(read("<domain><devices>"), Details::default(), "no XML at all");
    }
}
