//! The URLs of a document: https alone, nothing secret in them.
//!
//! Room: `node`.
use super::InvalidValue;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Where an image or snapshot is fetched from: an absolute https URL of at most 2,048 characters, without user name,
/// password or fragment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HttpsUrl(String);

impl HttpsUrl {
    /// Parses `text`.
    ///
    /// # Errors
    /// [`InvalidValue`] for another scheme, no host, credentials, a fragment, or characters that a URI may not have.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let no = |rule: &'static str| InvalidValue::text("url", text, rule);
        if text.len() > 2048 {
            return Err(no("the most is 2048 characters"));
        }
        if text.contains('#') {
            return Err(no("a URL with a fragment ('#…') is not fetched: leave it out"));
        }
        let uri: http::Uri = text.parse().map_err(|_| no("use an absolute https URL"))?;
        if uri.scheme() != Some(&http::uri::Scheme::HTTPS) {
            return Err(no("use an absolute https URL: other schemes are not fetched"));
        }
        let authority = uri.authority().ok_or_else(|| no("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(no("a user name or password may not stand in the document: leave out what is before '@'"));
        }
        if authority.host().is_empty() {
            return Err(no("it names no host"));
        }
        if authority
            .as_str()
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.ends_with(']') && port.parse::<u16>().is_err())
        {
            return Err(no("its port is not a number from 0 to 65535"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HttpsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for HttpsUrl {
    type Error = InvalidValue;
    fn try_from(text: String) -> Result<Self, InvalidValue> {
        Self::parse(&text)
    }
}

impl From<HttpsUrl> for String {
    fn from(url: HttpsUrl) -> Self {
        url.0
    }
}

impl JsonSchema for HttpsUrl {
    fn schema_name() -> Cow<'static, str> {
        "HttpsUrl".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "uri",
            "pattern": r"^[Hh][Tt][Tt][Pp][Ss]://[^#@/?\s]+([/?][^#\s]*)?$",
            "maxLength": 2048,
            "description": "An absolute https URL without user name, password or fragment.",
        })
    }
}
