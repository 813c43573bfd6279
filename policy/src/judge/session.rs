//! Judges `hello` and `records`: requests about the helper itself.
//!
//! Room: `policy`.
use crate::decide::Setting;
use crate::denial::{Denial, Rule};
use crate::effect::Grant;
use crate::record::Record;
use bcd_protocol::PROTOCOL_VERSION;
use bcd_protocol::id::InstanceId;
use bcd_protocol::limits;
use bcd_protocol::reply::{RecordView, RecordViews, RecordsPage, Reply, Sentence, Welcome};

#[cfg(test)]
mod tests;

pub(crate) fn hello(setting: &Setting<'_>, version: u16) -> Result<Grant, Denial> {
    if version == PROTOCOL_VERSION {
        let package = Sentence::new(setting.package);
        return Ok(Grant::answer(Reply::Hello(Welcome { version: PROTOCOL_VERSION, package })));
    }
    Err(Denial::new(
        Rule::Version,
        format!(
            "the client speaks protocol version {version} and this helper {PROTOCOL_VERSION}: install one package and \
             restart both daemons"
        ),
    ))
}

pub(crate) fn records(setting: &Setting<'_>, after: Option<&InstanceId>, limit: u16) -> Grant {
    let most = usize::from(limit.min(limits::RECORDS_PER_PAGE));
    let mut rest = setting.records.after(after);
    let page: Vec<RecordView> = rest.by_ref().take(most).map(Record::view).collect();
    Grant::answer(Reply::Records(RecordsPage {
        generation: setting.generation,
        total: u32::try_from(setting.records.len()).unwrap_or(u32::MAX),
        more: rest.next().is_some(),
        records: RecordViews::try_from(page).unwrap_or_default(),
    }))
}
