//! The protobuf wire format: tags, varints, lengths.

/// Value of a field in wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireValue<'a> {
    /// Variable-length integer.
    Varint(u64),
    /// Length-delimited bytes.
    Bytes(&'a [u8]),
    /// Fixed-size value of 8 or 4 bytes, which no supported message uses.
    Fixed,
}

/// The bytes are not a valid message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Iterator over the fields of a message in wire order.
pub(super) struct WireFields<'a>(&'a [u8]);

// === impl WireFields ===

impl<'a> WireFields<'a> {
    /// Reads the fields of a message.
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn read_field(&mut self) -> Result<(u64, WireValue<'a>), Malformed> {
        let tag = self.read_varint()?;
        let wire = match tag & 7 {
            0 => WireValue::Varint(self.read_varint()?),
            1 => self.take(8).map(|_| WireValue::Fixed)?,
            2 => {
                let length = usize::try_from(self.read_varint()?).map_err(|_| Malformed)?;
                WireValue::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| WireValue::Fixed)?,
            _ => return Err(Malformed),
        };
        Ok((tag >> 3, wire))
    }

    fn read_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }
}

impl<'a> Iterator for WireFields<'a> {
    type Item = Result<(u64, WireValue<'a>), Malformed>;

    /// Ends after the first error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read_field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}
