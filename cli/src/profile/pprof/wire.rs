//! The outermost level of a message, field by field. Decoded at once, a file of empty fields would
//! take thirty times its size.

use crate::failure::Failure;
use prost::encoding::{WireType, decode_key, decode_varint};

/// One field.
pub enum Field<'a> {
    /// A number.
    Number(u64),
    /// A string, a message, or packed numbers.
    Bytes(&'a [u8]),
}

/// The fields of a message, each with its number and contents.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn field(&mut self) -> Result<(u32, Field<'a>), Failure> {
        let (tag, wire_type) = decode_key(&mut self.rest).map_err(damaged)?;
        let field = match wire_type {
            WireType::Varint => Field::Number(decode_varint(&mut self.rest).map_err(damaged)?),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut self.rest).map_err(damaged)?;
                Field::Bytes(self.take(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            WireType::SixtyFourBit => Field::Bytes(self.take(8)?),
            WireType::ThirtyTwoBit => Field::Bytes(self.take(4)?),
            WireType::StartGroup | WireType::EndGroup => return Err(damaged("it has groups")),
        };
        Ok((tag, field))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Failure> {
        let cut = self.rest.split_at_checked(length);
        let (field, rest) = cut.ok_or_else(|| damaged("it is cut short"))?;
        self.rest = rest;
        Ok(field)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Field<'a>), Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let field = (!self.rest.is_empty()).then(|| self.field())?;
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Whether `bytes` are fields to their end. Almost no text is.
pub fn is_message(bytes: &[u8]) -> bool {
    Fields::of(bytes).all(|field| field.is_ok())
}

/// An error for a malformed file.
pub fn damaged(why: impl std::fmt::Display) -> Failure {
    failure!("this is not a pprof profile, or it is damaged: {why}")
}
