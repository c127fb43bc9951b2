//! Variants: the systems and the steps that the paper compares (§5.2, figures "Contributions of techniques"),
//! and ours.
//!
//! A variant is a choice of [`Techniques`], of a node [`Format`] and of parameters of the cluster. Each of
//! the paper's steps contains the ones before it. These points differ from the paper, or the paper leaves
//! them open:
//!
//! - A reader of `fg` detects a torn node by a checksum. The paper's FG+ uses versions at both ends of a
//!   node, which is unsound if a READ can tear (F1, F2). `fg+` and the steps up to `+hierarchical` therefore
//!   use a stamp in every line: this is safe, with the same whole-node write-back.
//! - `sherman` is the complete paper, including two-level versions. These are safe only if a verb is atomic
//!   as a whole. Embedded memory servers provide that on request (`atomicity=verb`), at a cost in speed that
//!   a NIC would not have.
//! - The paper's variants do not survive the death of a client. `ours` logs what recovery needs.
//! - In experiments on the NIC model, the paper's variants retry for a lane without backoff, as in its
//!   pseudo-code. The steps to `ours` use increasing backoff there, and from `+fair` on a short, constant
//!   pause. Elsewhere all variants use backoff.

use sherman::{Format, Techniques};

sherman_fabric::named! {
    /// A system, or a step from one to another.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
    pub enum Variant {
        /// FG: lanes in host memory, released by FAA; sorted leaves with a checksum; no cache.
        Fg => "fg",
        /// FG with an index cache.
        FgCache => "fg+cache",
        /// FG+: with the cache, and lanes released by WRITE.
        FgPlus => "fg+",
        /// Write-back and release in one list.
        Combine => "+combine",
        /// Lanes in on-chip memory.
        OnChip => "+on-chip",
        /// A local lock table, with its queue and handover.
        Hierarchical => "+hierarchical",
        /// The complete paper: two-level versions.
        Sherman => "sherman",
        /// Lock and READ in one list, redo records, a stamp in every line: safe on every fabric. The first
        /// step from `sherman` to `ours`.
        Stamped => "+stamped",
        /// Leaves that are read by the line.
        Lines => "+lines",
        /// The holder of a lane executes the changes that wait for it, and hands no lane over.
        Combining => "+combining",
        /// Gets of one compute server share READs of hot lines.
        SharedReads => "+shared-reads",
        /// Short, constant pauses before a lane is tried again.
        Fair => "+fair",
        /// This project's defaults: all of these.
        #[default]
        Ours => "ours",
        /// `ours` with leaves that are read whole. Without lines, changes are not combined and READs are not
        /// shared.
        OursNoLines => "ours-lines",
        /// `ours` in which each operation makes its own change.
        OursNoCombining => "ours-combining",
        /// `ours` in which each get has its own READ.
        OursNoSharedReads => "ours-shared-reads",
        /// `ours` with pauses that grow before a lane is tried again.
        OursNoFair => "ours-fair",
    }
}

crate::parsed_by_name!(Variant, "no variant has this name; available are ");

impl Variant {
    /// Returns the techniques of its compute servers.
    pub const fn techniques(self) -> Techniques {
        match self {
            Self::Fg => Techniques::NONE,
            Self::FgCache | Self::FgPlus => Techniques { cache: true, ..Techniques::NONE },
            Self::Combine | Self::OnChip => Techniques { cache: true, combine: true, ..Techniques::NONE },
            Self::Hierarchical | Self::Sherman => Techniques::SHERMAN,
            Self::Stamped | Self::Lines => Techniques { lock_read: true, redo: true, ..Techniques::SHERMAN },
            Self::Combining => Techniques { shared_reads: false, fair: false, ..Techniques::OURS },
            Self::SharedReads | Self::OursNoFair => Techniques { fair: false, ..Techniques::OURS },
            Self::OursNoCombining => Techniques { combining: false, ..Techniques::OURS },
            Self::OursNoSharedReads => Techniques { shared_reads: false, ..Techniques::OURS },
            Self::Fair | Self::Ours | Self::OursNoLines => Techniques::OURS,
        }
    }

    /// Whether it is a step from the paper's system to this project's defaults, or the defaults without one
    /// technique.
    pub const fn is_new(self) -> bool {
        matches!(self.format(), Format::LineStamped | Format::LineHashed)
    }

    /// Returns the format of its nodes.
    pub const fn format(self) -> Format {
        match self {
            Self::Fg | Self::FgCache => Format::Sorted,
            Self::FgPlus | Self::Combine | Self::OnChip | Self::Hierarchical => Format::SortedStamped,
            Self::Sherman => Format::TwoLevel,
            Self::Stamped | Self::OursNoLines => Format::LineStamped,
            Self::Lines | Self::Combining | Self::SharedReads | Self::Fair | Self::Ours => Format::LineHashed,
            Self::OursNoCombining | Self::OursNoSharedReads | Self::OursNoFair => Format::LineHashed,
        }
    }

    /// Returns the parameters of an `embedded:` cluster for this variant with nodes of `format`, if they are
    /// not the defaults.
    fn parameters(self, format: Format) -> impl Iterator<Item = (&'static str, &'static str)> {
        let host = matches!(self, Self::Fg | Self::FgCache | Self::FgPlus | Self::Combine);
        let faa = matches!(self, Self::Fg | Self::FgCache);
        let whole = !format.safe_when_reads_tear();
        let all = [(host, ("locks", "host")), (faa, ("release", "faa")), (whole, ("atomicity", "verb"))];
        all.into_iter().filter_map(|(wanted, parameter)| wanted.then_some(parameter))
    }

    /// Returns `url` with this variant's parameters added, except those that `url` already names: the user's
    /// value wins. A URL that is not a well-formed `embedded:` URL is left for the library to check.
    pub fn cluster_url(self, url: &str, format: Format) -> String {
        let query = match url.strip_prefix("embedded:") {
            Some("") => "",
            Some(rest) if rest.starts_with('?') => &rest[1..],
            _ => return url.to_owned(),
        };
        let named = |name: &str| query.split('&').any(|parameter| parameter.split('=').next() == Some(name));
        let mut whole = url.to_owned();
        for (name, value) in self.parameters(format).filter(|(name, _)| !named(name)) {
            whole.push(if whole.ends_with(':') { '?' } else { '&' });
            whole.push_str(&format!("{name}={value}"));
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_variants() {
        for variant in Variant::ALL {
            assert_eq!(variant.name().parse(), Ok(variant));
        }
        assert!("FG".parse::<Variant>().is_err_and(|error| error.contains("fg+cache")));
    }

    #[test]
    fn each_step_adds_one_technique() {
        let url = |variant: Variant| variant.cluster_url("embedded:", variant.format());
        assert_eq!(url(Variant::Fg), "embedded:?locks=host&release=faa");
        assert_eq!(url(Variant::FgPlus), "embedded:?locks=host");
        assert_eq!(
            (url(Variant::Combine), url(Variant::OnChip)),
            ("embedded:?locks=host".into(), "embedded:".into())
        );
        assert_eq!(Variant::Combine.techniques(), Variant::OnChip.techniques());
        assert_eq!(Variant::Hierarchical.techniques(), Variant::Sherman.techniques());
        assert_eq!(url(Variant::Sherman), "embedded:?atomicity=verb");
        assert_eq!(url(Variant::Ours), "embedded:");
        let of = Variant::techniques;
        let combining = Techniques { shared_reads: true, ..of(Variant::Combining) };
        assert_eq!(of(Variant::SharedReads), combining);
        assert_eq!(of(Variant::Fair), Techniques { fair: true, ..combining });
        assert_eq!(of(Variant::Ours), of(Variant::Fair));
        assert_eq!(Techniques { combining: true, ..of(Variant::OursNoCombining) }, of(Variant::Ours));
        assert_eq!(Techniques { shared_reads: true, ..of(Variant::OursNoSharedReads) }, of(Variant::Ours));
        assert_eq!(Techniques { fair: true, ..of(Variant::OursNoFair) }, of(Variant::Ours));
    }

    #[test]
    fn what_the_user_says_of_the_cluster_counts() {
        let url = |url| Variant::Fg.cluster_url(url, Format::Sorted);
        assert_eq!(url("embedded:?servers=4&release=cas"), "embedded:?servers=4&release=cas&locks=host");
        assert_eq!(url("embedded:?locks=on-chip&release=faa"), "embedded:?locks=on-chip&release=faa");
        for odd in ["embedded:servers=2", "tcp://a:1", ""] {
            assert_eq!(url(odd), odd);
        }
    }

    #[test]
    fn a_format_brings_the_atomicity_it_needs() {
        let url = |variant: Variant, format| variant.cluster_url("embedded:", format);
        assert_eq!(url(Variant::Ours, Format::TwoLevel), "embedded:?atomicity=verb");
        assert_eq!(url(Variant::Sherman, Format::LineStamped), "embedded:");
    }
}
