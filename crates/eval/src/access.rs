//! Access to a tree through a blocking client or through an asynchronous session. Benchmarks drive both with
//! the same code.

use sherman::{Error, RawClient, RawSession};

/// A blocking client or a session of the tree.
pub(crate) trait Access {
    async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error>;
    async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error>;
    async fn remove(&self, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error>;
    /// Calls `visit` for up to `entries` entries from `from` on, ascending.
    async fn range(&self, from: &[u8], entries: usize, visit: impl FnMut(&[u8], &[u8])) -> Result<(), Error>;
}

impl Access for RawClient {
    async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        self.get_into(key, value)
    }

    async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        self.insert_into(key, value, old)
    }

    async fn remove(&self, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        self.remove_into(key, old)
    }

    async fn range(
        &self,
        from: &[u8],
        entries: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        let mut range = RawClient::range(self, from..).limit(entries);
        while let Some((key, value)) = range.advance()? {
            visit(key, value);
        }
        Ok(())
    }
}

impl Access for RawSession {
    async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        let found = RawSession::get(self, key).await?;
        Ok(found.map(|found| *value = found).is_some())
    }

    async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        let replaced = RawSession::insert(self, key, value).await?;
        Ok(replaced.map(|replaced| *old = replaced).is_some())
    }

    async fn remove(&self, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        let removed = RawSession::remove(self, key).await?;
        Ok(removed.map(|removed| *old = removed).is_some())
    }

    async fn range(
        &self,
        from: &[u8],
        entries: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        let mut range = RawSession::range(self, from..).limit(entries);
        while let Some((key, value)) = range.advance().await? {
            visit(key, value);
        }
        Ok(())
    }
}
