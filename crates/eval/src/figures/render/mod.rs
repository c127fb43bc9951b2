//! Renders figures as pictures: an SVG for each, and a page of all of them. The renderer writes only text.
//! The pictures need no script, no font, and no request.
//!
//! | module | what |
//! |---|---|
//! | [`svg`](mod@svg) | shapes and text |
//! | [`scale`] | axes |
//! | [`style`] | colours, textures, dashes and markers, light and dark |
//! | [`panel`] | a plot: frame, axes, legend |
//! | [`marks`] | bars and lines in the plot |
//! | [`alone`] | a figure as a separate file |
//! | [`html`], [`section`] | the page, and its section about a figure |

mod alone;
mod html;
mod marks;
mod panel;
mod scale;
mod section;
mod style;
mod svg;

pub(super) use alone::svg;
pub(super) use html::page;

#[cfg(test)]
mod tests;
