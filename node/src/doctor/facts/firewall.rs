//! What filters packets that a bridge passes on.
//!
//! Room: `node`. The rules of nftables and of both iptables in one form, as much of them as concerns bridged packets: a match
//! that says something else is [`Match::Other`], and a verdict that is not understood is [`Verdict::Unknown`].
use super::words::Words;

/// Everything that could be seen of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firewall {
    /// Of which bridges br_netfilter hands IPv4 packets to iptables and to nftables' chains for IP.
    pub ipv4: Handed,
    /// And IPv6 packets.
    pub ipv6: Handed,
    /// Every chain of nftables and of iptables' table filter; or why they cannot be seen or understood.
    pub chains: Result<Vec<Chain>, Words>,
    /// Whether root looked: nobody else is shown them.
    pub as_root: bool,
    /// What is there, may drop packets as well and was not read.
    pub unread: Vec<String>,
}

/// Of which bridges packets are handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handed {
    /// Of all of them: the host's setting.
    All,
    /// Of these, by a setting of their own.
    Of(Vec<String>),
}

impl Handed {
    /// Whether those of `bridge` are.
    #[must_use]
    pub fn is_of(&self, bridge: &str) -> bool {
        match self {
            Self::All => true,
            Self::Of(bridges) => bridges.iter().any(|one| one == bridge),
        }
    }
}

/// Where a packet's family sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// Both.
    Inet,
    /// Whatever a bridge passes on.
    Bridge,
}

impl Family {
    /// As nftables calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Inet => "inet",
            Self::Bridge => "bridge",
        }
    }

    /// The family of this name, if bridged packets may pass its chains.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        [Self::Ip, Self::Ip6, Self::Inet, Self::Bridge].into_iter().find(|family| family.name() == name)
    }
}

/// Hooks that a packet passes on its way through a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// It came in.
    Prerouting,
    /// It is to go on.
    Forward,
    /// It goes out.
    Postrouting,
}

/// The program whose words a chain is known by, and which changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// nftables.
    Nft,
    /// This iptables.
    Iptables(&'static str),
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Whose words these are.
    pub tool: Tool,
    /// Its family.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Where packets come into it by themselves; `None`: by a jump alone, or at a hook that bridged packets do not pass.
    pub hook: Option<Hook>,
    /// Whether what no rule decides about is dropped.
    pub drops: bool,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// A rule: what it says of a packet that fits every match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What a packet has to fit.
    pub matches: Vec<Match>,
    /// What becomes of it.
    pub verdict: Verdict,
}

/// One condition of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// The interface that it came in by is, or is not, one of these; `*` at the end stands for anything.
    In(Names),
    /// The interface that it goes out by.
    Out(Names),
    /// The bridge that it came in by.
    InBridge(Names),
    /// The bridge that it goes out by.
    OutBridge(Names),
    /// A bridge passes it on (true), or does not.
    Bridged(bool),
    /// Anything else: it depends on the packet.
    Other,
}

/// Names, or all but them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The names.
    pub names: Vec<String>,
    /// All but them.
    pub not: bool,
}

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The next rule is asked.
    Next,
    /// It passes this hook's chain.
    Accept,
    /// It is dropped, or refused.
    Drop,
    /// Back to where the chain was jumped from.
    Return,
    /// To this chain, and back.
    Jump(String),
    /// To this chain, and not back.
    Goto(String),
    /// It is not known what.
    Unknown,
}
