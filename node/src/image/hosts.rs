//! Which URLs may be fetched: https to an allowed host, without credentials.
//!
//! Room: `node`. The same rule judges the URL in the spec and every redirect: a server cannot send us elsewhere.
use crate::fault::{Fault, FaultKind};
use reqwest::Url;

/// The port of https.
const HTTPS_PORT: u16 = 443;

/// Hosts that images may come from.
#[derive(Debug, Clone)]
pub(super) struct AllowedHosts {
    /// Host in lower case, as [`Url`] writes it, and port. Empty: any.
    entries: Vec<(String, u16)>,
}

/// Why a URL is not fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// Another scheme, credentials, no host.
    #[error("{url}: {rule}")]
    Unusable {
        /// The URL without its query.
        url: String,
        /// What it breaks.
        rule: &'static str,
    },
    /// The host is not listed.
    #[error("{host}:{port} is not in [node.images] allowed_hosts: list \"{host}:{port}\" there, or use a host that is")]
    NotAllowed {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
}

impl Refusal {
    /// The kind that status reports.
    pub(super) fn kind(&self) -> FaultKind {
        match self {
            Self::Unusable { .. } => FaultKind::InvalidSpec,
            Self::NotAllowed { .. } => FaultKind::Denied,
        }
    }
}

impl AllowedHosts {
    /// Parses the configuration's list: `name` (port 443) or `name:port`.
    ///
    /// # Errors
    /// `InvalidSpec` naming the entry that is neither.
    pub(super) fn parse(list: &[String]) -> Result<Self, Fault> {
        let entries = list.iter().map(|entry| Self::entry(entry)).collect::<Result<_, _>>()?;
        Ok(Self { entries })
    }

    fn entry(entry: &str) -> Result<(String, u16), Fault> {
        let url = Url::parse(&format!("https://{entry}/")).ok();
        let plain =
            |url: &Url| url.path() == "/" && url.query().is_none() && url.fragment().is_none() && anonymous(url);
        url.filter(|url| plain(url) && !entry.contains('/')).and_then(|url| place(&url)).ok_or_else(|| {
            let sentence =
                format!("[node.images] allowed_hosts has {entry:?}: use a host name or address, or host:port");
            Fault::new(FaultKind::InvalidSpec, sentence)
        })
    }

    /// Judges one URL.
    ///
    /// # Errors
    /// The rule it breaks.
    pub(super) fn judge(&self, url: &Url) -> Result<(), Refusal> {
        let unusable = |rule| Err(Refusal::Unusable { url: shown(url), rule });
        if url.scheme() != "https" {
            return unusable("images are fetched over https only");
        }
        if !anonymous(url) {
            return unusable("a URL must not carry a user name or password");
        }
        let Some((host, port)) = place(url) else {
            return unusable("it names no host");
        };
        let listed = self.entries.iter().any(|(name, at)| *name == host && *at == port);
        if self.entries.is_empty() || listed { Ok(()) } else { Err(Refusal::NotAllowed { host, port }) }
    }
}

fn anonymous(url: &Url) -> bool {
    url.username().is_empty() && url.password().is_none()
}

/// Host and port; a name's closing dot makes no other host.
fn place(url: &Url) -> Option<(String, u16)> {
    let host = url.host_str().map(|host| host.strip_suffix('.').unwrap_or(host)).filter(|host| !host.is_empty())?;
    Some((host.to_owned(), url.port().unwrap_or(HTTPS_PORT)))
}

/// The URL as people may see it: a query can hold a signature that opens the image to whoever reads it.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Cannot fail for https; for anything else what stays is what was written.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(list: &[&str], url: &str) -> Result<(), Refusal> {
        let list: Vec<_> = list.iter().map(|s| (*s).to_owned()).collect();
        AllowedHosts::parse(&list).unwrap().judge(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_listed_name_means_the_https_port_alone() {
        assert_eq!(judge(&["images.example"], "https://images.example/a"), Ok(()));
        assert_eq!(judge(&["images.example"], "https://images.example:443/a"), Ok(()));
        assert_eq!(judge(&["IMAGES.example"], "https://Images.Example./a"), Ok(()));
        assert!(matches!(
            judge(&["images.example"], "https://images.example:8443/a"),
            Err(Refusal::NotAllowed { port: 8443, .. })
        ));
        assert_eq!(judge(&["images.example:8443"], "https://images.example:8443/a"), Ok(()));
        assert_eq!(judge(&["[::1]:8443", "10.0.0.1"], "https://[::1]:8443/a"), Ok(()));
    }

    #[test]
    fn a_host_that_only_contains_a_listed_one_is_denied() {
        for url in ["https://images.example.evil/", "https://evil-images.example/", "https://evil/images.example"] {
            assert_eq!(judge(&["images.example"], url).unwrap_err().kind(), FaultKind::Denied, "{url}");
        }
    }

    #[test]
    fn no_list_admits_any_host_but_no_other_scheme_and_no_credentials() {
        assert_eq!(judge(&[], "https://anything.example/a"), Ok(()));
        for url in ["http://anything.example/", "file:///etc/passwd", "https://user:word@anything.example/"] {
            assert_eq!(judge(&[], url).unwrap_err().kind(), FaultKind::InvalidSpec, "{url}");
        }
    }

    #[test]
    fn an_entry_that_is_no_host_is_refused_with_its_text() {
        for entry in ["https://a.example", "a.example/path", "u@a.example", "", "a.example:99999", "a b", "a.example?x"]
        {
            let fault = AllowedHosts::parse(&[entry.to_owned()]).unwrap_err();
            assert!(fault.to_string().contains(&format!("{entry:?}")), "{fault}");
        }
    }

    #[test]
    fn a_signature_in_the_query_is_not_shown() {
        let url = Url::parse("https://u:p@a.example/i.qcow2?sig=secret#f").unwrap();
        assert_eq!(shown(&url), "https://a.example/i.qcow2");
    }
}
