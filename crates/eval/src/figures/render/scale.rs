//! Axes: their range, the positions of values, and the labelled values.

use crate::figures::text::{short, trimmed};

/// The approximate number of labelled values on an axis.
const TICKS: f64 = 6.0;

/// The range of an axis, and the positions of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    /// The distance between labelled values of a linear axis.
    step: f64,
    /// The positions of `low` and `high`, in units of the drawing.
    from: f64,
    to: f64,
}

/// A value with a line, and its label. The label is empty for a helper line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// The value.
    pub value: f64,
    /// The label.
    pub label: String,
}

impl Scale {
    /// Makes a scale for these values with round ends. With `zero`, a linear scale includes zero.
    pub(super) fn round(values: impl Iterator<Item = f64>, log: bool, zero: bool) -> Self {
        let (least, most) = span(values, log);
        let (low, high, step) = if log { decades(least, most) } else { steps(least, most, zero) };
        Self { low, high, log, step, from: 0.0, to: 1.0 }
    }

    /// Makes a scale that spans exactly these values.
    pub(super) fn tight(values: impl Iterator<Item = f64>, log: bool) -> Self {
        let (low, high) = span(values, log);
        let (low, high) = match (low < high, log) {
            (true, _) => (low, high),
            (false, true) => (low / 2.0, high * 2.0),
            (false, false) => (low - 1.0, high + 1.0),
        };
        Self { low, high, log, step: step(high - low), from: 0.0, to: 1.0 }
    }

    /// Returns the same scale between two positions of the drawing.
    #[must_use]
    pub(super) fn between(self, from: f64, to: f64) -> Self {
        Self { from, to, ..self }
    }

    /// Returns the position of a value. `None` if it is not a number, infinite, or has no logarithm on a
    /// logarithmic scale. Values beyond an end are placed at that end.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.log && value <= 0.0) {
            return None;
        }
        let part = if self.log {
            (libm::log10(value) - libm::log10(self.low)) / (libm::log10(self.high) - libm::log10(self.low))
        } else {
            (value - self.low) / (self.high - self.low)
        };
        Some(self.from + part.clamp(0.0, 1.0) * (self.to - self.from))
    }

    /// Returns the base of bars: zero, or the nearest end if the axis does not include zero.
    pub(super) fn base(&self) -> f64 {
        let value = if self.log { self.low } else { self.low.max(0.0).min(self.high) };
        self.place(value).unwrap_or(self.from)
    }

    /// Returns the values to label, ascending.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        if self.log { self.log_ticks() } else { self.linear_ticks() }
    }

    fn linear_ticks(&self) -> Vec<Tick> {
        let step = self.step;
        let decimals = (0..12_i32).find(|&places| whole(step * power(places))).unwrap_or(12) as usize;
        let first = libm::ceil(self.low / step - 1e-9);
        let last = libm::floor(self.high / step + 1e-9);
        let count = (last - first).clamp(0.0, 20.0) as usize;
        let values = (0..=count).map(|index| (first + index as f64) * step);
        values
            .map(|value| {
                let label =
                    if value.abs() >= 1e4 { short(value) } else { trimmed(format!("{value:.decimals$}")) };
                Tick { value, label }
            })
            .collect()
    }

    /// Returns the decades with labels, and their parts without labels. With few decades some parts get
    /// labels; with many decades some decades have none.
    fn log_ticks(&self) -> Vec<Tick> {
        let (first, last) =
            (libm::floor(libm::log10(self.low)) as i32, libm::ceil(libm::log10(self.high)) as i32);
        let decades = libm::log10(self.high) - libm::log10(self.low);
        let named: &[u32] = match decades {
            _ if decades <= 1.3 => &[1, 2, 3, 5],
            _ if decades <= 3.0 => &[1, 2, 5],
            _ => &[1],
        };
        let every = (decades / (TICKS + 1.0)) as i32 + 1;
        let mut ticks = Vec::new();
        for decade in first..=last {
            for part in (1..10_u32).filter(|part| *part == 1 || decades <= 4.5) {
                let value = f64::from(part) * power(decade);
                if value < self.low * (1.0 - 1e-9) || value > self.high * (1.0 + 1e-9) {
                    continue;
                }
                let is_named = named.contains(&part) && (decade - first) % every == 0;
                ticks.push(Tick { value, label: if is_named { short(value) } else { String::new() } });
            }
        }
        ticks
    }
}

/// Returns the lowest and the highest value that can be drawn. Without such values, returns a default for an
/// empty axis.
fn span(values: impl Iterator<Item = f64>, log: bool) -> (f64, f64) {
    let drawn = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
    let (least, most) = drawn.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (f64::min(least, value), f64::max(most, value))
    });
    if least <= most { (least, most) } else { (1.0, 10.0) }
}

/// Returns round ends on a linear scale.
fn steps(least: f64, most: f64, zero: bool) -> (f64, f64, f64) {
    let (least, most) = if zero { (least.min(0.0), most.max(0.0)) } else { (least, most) };
    let (least, most) = if least < most { (least, most) } else { (least - 1.0, most + 1.0) };
    let step = step(most - least);
    (libm::floor(least / step + 1e-9) * step, libm::ceil(most / step - 1e-9) * step, step)
}

/// Returns round ends on a logarithmic scale: 1, 2 or 5 times a power of ten. The lower end is below the
/// lowest value, so that its bar is visible.
fn decades(least: f64, most: f64) -> (f64, f64, f64) {
    let round = |value: f64| {
        let decade = libm::floor(libm::log10(value)) as i32;
        (decade - 1..=decade + 1).flat_map(|decade| [1.0, 2.0, 5.0].map(|part| part * power(decade)))
    };
    let low = round(least).filter(|&end| end < least * (1.0 - 1e-9)).fold(0.0, f64::max);
    let high = round(most).filter(|&end| end >= most * (1.0 - 1e-9)).fold(f64::INFINITY, f64::min);
    if low > 0.0 && high.is_finite() { (low, high, 1.0) } else { (least, most.max(least * 10.0), 1.0) }
}

/// Returns a round distance between the lines of an axis with this span.
fn step(span: f64) -> f64 {
    let rough = span / TICKS;
    let unit = power(libm::floor(libm::log10(rough)) as i32);
    let parts = [1.0, 2.0, 5.0, 10.0].map(|part| part * unit);
    parts.into_iter().find(|&step| step >= rough * (1.0 - 1e-9)).unwrap_or(10.0 * unit)
}

/// Returns a power of ten, as the nearest floating-point number.
fn power(exponent: i32) -> f64 {
    format!("1e{exponent}").parse().unwrap_or(1.0)
}

fn whole(value: f64) -> bool {
    (value - libm::round(value)).abs() < 1e-6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], log: bool) -> Vec<String> {
        let ticks = Scale::round(values.iter().copied(), log, true).ticks();
        ticks.into_iter().map(|tick| tick.label).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        assert_eq!(labels(&[7.3], false), ["0", "2", "4", "6", "8"]);
        assert_eq!(labels(&[0.98, 0.5], false), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&[44.0], false), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!(labels(&[-3.0, 9.0], false), ["-4", "-2", "0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(&[90_000.0], false), ["0", "20k", "40k", "60k", "80k", "100k"]);
        assert_eq!(labels(&[0.0], false), ["-1", "-0.5", "0", "0.5", "1"]);
    }

    #[test]
    fn log_ticks_are_decades_or_few_parts_of_them() {
        assert_eq!(labels(&[3.0, 20_000.0], true), ["10", "100", "1000", "10k"]);
        assert_eq!(labels(&[12.0, 70.0], true), ["10", "20", "30", "50", "100"]);
        assert!(labels(&[1e-9, 1e9], true).len() <= 8);
    }

    #[test]
    fn nothing_odd_has_a_place_and_everything_else_lies_between_the_ends() {
        for log in [false, true] {
            for values in
                [&[][..], &[5.0], &[0.0], &[1e-300, 1e300], &[f64::NAN, 2.0], &[-1.0, f64::INFINITY]]
            {
                let scale = Scale::round(values.iter().copied(), log, true).between(10.0, 110.0);
                assert_eq!((scale.place(f64::NAN), scale.place(f64::INFINITY)), (None, None));
                for &value in values.iter().filter(|value| value.is_finite()) {
                    let place = scale.place(value);
                    assert!(place.is_none_or(|place| (10.0..=110.0).contains(&place)), "{value}: {place:?}");
                    assert!(place.is_some() || (log && value <= 0.0), "{value}");
                }
                assert!((10.0..=110.0).contains(&scale.base()));
                assert!(
                    scale.ticks().len() < 6000 && scale.ticks().iter().all(|tick| tick.value.is_finite())
                );
            }
        }
    }
}
