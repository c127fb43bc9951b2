//! The bugs that a test can plant in the reference backend.

/// A planted breach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// No bug: the backend keeps the contract.
    None,
    /// F1: a READ fetches words, not units.
    TornReads,
    /// F1: a WRITE stores words, not units.
    TornWrites,
    /// F1: on-chip words are stored in two halves.
    TornChipWords,
    /// F1: a WRITE of part of a unit reads the unit, then writes all of it back.
    PartialWriteRewritesUnit,
    /// F1: an atomic reads its unit, then writes all of it back.
    AtomicRewritesUnit,
    /// F2: a READ may return bytes that the endpoint read before.
    CachedReads,
    /// F2: a READ may return the bytes from when the endpoint's last list completed.
    PrefetchedReads,
    /// F3: neighbouring WRITEs of a list may swap.
    WritesSwap,
    /// F3: neighbouring lists may swap.
    ListsSwap,
    /// F3: on-chip WRITEs do not wait for host WRITEs.
    ChipRunsAhead,
    /// F3: host WRITEs do not wait for on-chip WRITEs.
    HostRunsAhead,
    /// F3: atomics do not wait for WRITEs.
    AtomicsRunAhead,
    /// F3: READs do not wait for the verbs before them in their list.
    ReadsRunAhead,
    /// F3: fenced WRITEs do not wait for READs.
    FenceIgnored,
    /// F4: an atomic reads and writes at different times.
    SplitAtomics,
    /// F4: only on-chip atomics read and write at different times.
    SplitChipAtomics,
    /// F4: a masked CAS compares and swaps the whole word.
    MaskIgnored,
    /// F4: the swap of a masked CAS reaches beyond its mask.
    MaskLeaks,
    /// F4: a WRITE of less than a word reads the word, then writes all of it back.
    ShortWriteRewritesWord,
    /// F4: a failed CAS returns the word it compared with.
    WrongOld,
    /// F5: WRITEs complete before they land.
    CompletesEarly,
    /// F5: WRITEs may land a second time after they have completed.
    LandsTwice,
    /// F6: a fence stops new lists, but not the lists in flight.
    FenceLeavesInFlight,
    /// F6: a fence stops only the client's first endpoint.
    FenceMissesEndpoints,
    /// F6: a fence stops every client.
    FenceStopsAll,
    /// F6: a retired client is no longer fenced.
    RetireLiftsFence,
    /// F7: the verbs after a bad one execute.
    ErrorRunsOn,
    /// F7: a bad verb is skipped, and its list completes.
    ErrorSwallowed,
    /// F7: a failed list executed with a gap.
    ErrorLeavesGap,
    /// F7: a list larger than caps allow executes.
    LimitsIgnored,
    /// Any rule: the backend sometimes loses a completion.
    LosesCompletions,
}
