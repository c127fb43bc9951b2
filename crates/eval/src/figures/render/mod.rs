//! Figures as pictures: an SVG for each, and a page of all of them. Nothing but text is needed to make them, and nothing but
//! themselves to read them: no script, no font, no request.
//!
//! | module | what |
//! |---|---|
//! | [`svg`](mod@svg) | shapes and text |
//! | [`scale`] | axes |
//! | [`style`] | colours, textures, dashes and markers, light and dark |
//! | [`panel`] | a plot: frame, axes, legend |
//! | [`marks`] | what is in it: bars, lines |
//! | [`alone`] | a figure as a file of its own |
//! | [`html`], [`section`] | the page, and what it says of a figure |

mod alone;
mod html;
mod marks;
mod panel;
mod scale;
mod section;
mod style;
mod svg;

pub use alone::svg;
pub use html::page;

#[cfg(test)]
mod tests;
