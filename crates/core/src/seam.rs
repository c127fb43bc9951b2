//! Seams: the places where a planted bug can replace a rule of the protocol.
//!
//! A rule is a small function with a name of the protocol: `stamps_agree`, `may_recover`, `merge_parts`. Its
//! body is the true protocol. With the cargo feature `mutants` its first line asks the seam module of its
//! layer (`node/seam.rs`, `lock/seam.rs`, …) whether a planted bug answers instead. Without the feature that
//! line expands to nothing.
//!
//! | form | the seam module answers with | for |
//! |---|---|---|
//! | `seam!(layer::rule(args))` | `Option<T>`: `Some` is returned in place of the rule's answer | most rules |
//! | `seam!(let kept = layer::rule(args))` | `ControlFlow<T, Kept>`: `Break` is returned | rules that own their arguments |
//!
//! Invariants: only the seam modules name mutants. The code outside of them does the same with the feature,
//! as long as no bug is planted.

/// Lets a planted bug answer in place of the rest of this function.
#[cfg(feature = "mutants")]
macro_rules! seam {
    (let $kept:pat = $layer:ident::$($rule:tt)*) => {
        let $kept = match crate::$layer::seam::$($rule)* {
            std::ops::ControlFlow::Break(broken) => return broken,
            std::ops::ControlFlow::Continue(kept) => kept,
        };
    };
    ($layer:ident::$($rule:tt)*) => {
        if let Some(broken) = crate::$layer::seam::$($rule)* {
            return broken;
        }
    };
}

/// No bug can be planted in this build.
#[cfg(not(feature = "mutants"))]
macro_rules! seam {
    ($($rule:tt)*) => {};
}
