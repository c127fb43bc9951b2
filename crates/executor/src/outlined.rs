//! A future whose machine code stays in one crate.
//!
//! The compiler copies the body of an `async` block into every crate that polls it, and all bodies that it
//! awaits with it. So each program that uses an asynchronous library would compile the whole library again.
//! [`outlined`] ends this: a function that is never inlined polls the body, and the compiler reuses such a
//! function at every level of optimisation. The library must poll the future once in a function that is not
//! generic. Then its programs only call.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that a function of its own polls. [`outlined`] makes it.
pub struct Outlined<F> {
    future: F,
}

/// Lets other crates poll `future` without compiling its body again.
#[inline]
pub fn outlined<F: Future>(future: F) -> Outlined<F> {
    Outlined { future }
}

#[inline(never)]
fn poll_apart<F: Future>(future: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
    future.poll(cx)
}

impl<F: Future> Future for Outlined<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is pinned whenever the whole is. No method moves it or gives out `&mut F`. The
        // type has no destructor of its own, and is `Unpin` only if `F` is.
        let future = unsafe { self.map_unchecked_mut(|whole| &mut whole.future) };
        poll_apart(future, cx)
    }
}

impl<F> fmt::Debug for Outlined<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlined").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::outlined;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn an_outlined_future_ends_as_the_future_does() {
        let mut polls = 0;
        let twice = poll_fn(|_| {
            polls += 1;
            if polls == 2 { Poll::Ready(7) } else { Poll::Pending }
        });
        let mut future = pin!(outlined(async move { twice.await + 1 }));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(future.as_mut().poll(&mut cx), Poll::Pending);
        assert_eq!(future.as_mut().poll(&mut cx), Poll::Ready(8));
    }
}
