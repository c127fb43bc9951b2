//! Ways to a tree: a blocking client, which answers at once, and a session, which answers by and by. Benchmarks drive both by
//! the same code.

use sherman::{Error, RawClient, RawSession};

/// A way to the tree: at once, or by and by.
pub(crate) trait Access {
    async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error>;
    async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error>;
    async fn remove(&self, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error>;
    /// Shows `visit` up to `entries` entries from `from` on, ascending.
    async fn range(&self, from: &[u8], entries: usize, visit: impl FnMut(&[u8], &[u8])) -> Result<(), Error>;
}

impl Access for RawClient {
    async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        RawClient::get(self, key, value)
    }

    async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        RawClient::insert(self, key, value, old)
    }

    async fn remove(&self, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        RawClient::remove(self, key, old)
    }

    async fn range(&self, from: &[u8], entries: usize, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Error> {
        let mut range = RawClient::range(self, from..).limit(entries);
        // Not once more than there are entries to come: that would count as one more read.
        for _ in 0..entries {
            let Some((key, value)) = range.advance()? else { break };
            visit(key, value);
        }
        Ok(())
    }
}

impl Access for RawSession {
    async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        let found = RawSession::get(self, key.to_vec()).await?;
        Ok(found.map(|found| *value = found).is_some())
    }

    async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        let replaced = RawSession::insert(self, key.to_vec(), value.to_vec()).await?;
        Ok(replaced.map(|replaced| *old = replaced).is_some())
    }

    async fn remove(&self, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        let removed = RawSession::remove(self, key.to_vec()).await?;
        Ok(removed.map(|removed| *old = removed).is_some())
    }

    async fn range(&self, from: &[u8], entries: usize, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Error> {
        let mut range = RawSession::range(self, from..).limit(entries);
        for _ in 0..entries {
            let Some((key, value)) = range.advance().await? else { break };
            visit(key, value);
        }
        Ok(())
    }
}
