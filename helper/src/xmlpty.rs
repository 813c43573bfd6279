//! The serial pty in a live domain's XML.
//!
//! Room: `helper`. The XML is libvirt's, but the path in it came from QEMU: it is a claim, checked by whoever opens it.
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// The number `n` of `/dev/pts/<n>` that the first serial port of `xml` is connected to.
pub(crate) fn serial_pty(xml: &str) -> Option<u32> {
    let mut reader = Reader::from_str(xml);
    let mut open: Vec<String> = Vec::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(element) => {
                let found = within_serial(&open).then(|| source_path(&element)).flatten();
                if found.is_some() {
                    return found.as_deref().and_then(pts_number);
                }
                open.push(element.name().as_ref().to_owned());
            }
            Event::Empty(element) => {
                let found = within_serial(&open).then(|| source_path(&element)).flatten();
                if found.is_some() {
                    return found.as_deref().and_then(pts_number);
                }
            }
            Event::End(_) => {
                open.pop();
            }
            Event::Eof => return None,
            Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => {}
        }
    }
}

fn within_serial(open: &[String]) -> bool {
    open.iter().map(String::as_str).eq(["domain", "devices", "serial"])
}

fn source_path(element: &BytesStart<'_>) -> Option<String> {
    if element.name().as_ref() != "source" {
        return None;
    }
    let path = element.try_get_attribute("path").ok()??;
    Some(path.value.into_owned())
}

/// Only the plain form: no sign, no leading zero, no further part.
fn pts_number(path: &str) -> Option<u32> {
    let digits = path.strip_prefix("/dev/pts/")?;
    let number: u32 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(devices: &str) -> String {
        format!("<domain type='qemu' id='3'><name>x</name><devices>{devices}</devices></domain>")
    }

    #[test]
    fn the_first_serial_port_is_found() {
        let xml = domain(
            "<console type='pty' tty='/dev/pts/9'><source path='/dev/pts/9'/></console>\
             <serial type='pty'>\n<source path='/dev/pts/4'/><target port='0'/></serial>\
             <serial type='pty'><source path='/dev/pts/5'/></serial>",
        );
        assert_eq!(serial_pty(&xml), Some(4));
    }

    #[test]
    fn a_path_elsewhere_in_the_document_does_not_count() {
        let comment = "<!-- <serial type='pty'><source path='/dev/pts/1'/></serial> -->";
        let nested = "<disk><serial><source path='/dev/pts/2'/></serial></disk>";
        let metadata = "<metadata><devices><serial><source path='/dev/pts/3'/></serial></devices></metadata>";
        assert_eq!(serial_pty(&format!("<domain>{metadata}<devices>{comment}{nested}</devices></domain>")), None);
    }

    #[test]
    fn only_a_plain_pts_path_counts() {
        for path in [
            "/dev/pts/",
            "/dev/pts/ptmx",
            "/dev/pts/../sda",
            "/dev/pts/1/../../sda",
            "/dev/pts/+1",
            "/dev/pts/01",
            "/dev/pts/-1",
            "/dev/pts/99999999999",
            "/dev/sda",
            "dev/pts/1",
            "/dev/pts/1 ",
            "",
        ] {
            let xml = domain(&format!("<serial type='pty'><source path='{path}'/></serial>"));
            assert_eq!(serial_pty(&xml), None, "{path:?}");
        }
    }

    #[test]
    fn broken_xml_and_a_stopped_domain_have_none() {
        assert_eq!(serial_pty("<domain><devices><serial"), None);
        assert_eq!(serial_pty(&domain("<serial type='pty'><target port='0'/></serial>")), None);
    }
}
