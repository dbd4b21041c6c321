//! The part of Python's pickle format that state dicts of PyTorch use: dictionaries, numbers, names and
//! tensors.
//!
//! Nothing is executed: a global is one of the few below or an error that names it. Values refer to objects
//! by their place in a list, so no nesting, however deep, is followed. What a file may hold is bounded.

use safetensors::tensor::Dtype;

use super::dtypes::{dtype, storage_type};
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;

/// The memory that the values of a file may take: those of some 80,000 tensors.
const MAX_BYTES: usize = 64 << 20;
/// The most dimensions of a tensor, as in PyTorch.
const MAX_DIMENSIONS: usize = 64;

/// What stands on the stack.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// Text, from one byte of the pickle to another.
    Text(u32, u32),
    Global(Global),
    /// The object at this place.
    Object(u32),
    /// What no weight needs, such as a float.
    Other,
}

/// The globals that are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Global {
    OrderedDict,
    /// `_rebuild_tensor` and `_rebuild_tensor_v2`: storage, offset, shape, strides, and what training needs.
    RebuildTensor,
    /// The same with the element type at the end.
    RebuildTensorV3,
    /// Both forms of `_rebuild_parameter`: a tensor, and what training needs.
    RebuildParameter,
    /// One of the above, a class, its arguments, and attributes.
    RebuildFromType,
    Size,
    Class,
    /// The class of a storage; its elements are untyped if `None`.
    Storage(Option<Dtype>),
    Dtype(Dtype),
}

enum Object {
    /// A tuple or a list.
    Items(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    Storage(StorageId),
    Tensor(Tensor),
}

/// What a file says of a storage.
#[derive(Debug, Clone)]
pub(super) struct StorageId {
    pub(super) key: String,
    /// The type of its elements; bytes if `None`.
    pub(super) dtype: Option<Dtype>,
    pub(super) num_elements: usize,
    /// How many elements of the stored ones lie before it; only files without a zip have such views.
    pub(super) skipped: usize,
}

/// What a file says of a tensor.
#[derive(Debug, Clone)]
pub(super) struct Tensor {
    pub(super) storage: StorageId,
    pub(super) dtype: Dtype,
    /// In elements, as the strides are.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// Reads the pickles of a file, one after the other.
pub(super) struct Unpickler<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
    left: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Value>,
    objects: Vec<Object>,
}

impl<'a> Unpickler<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let empty = Vec::new;
        Self {
            bytes,
            at: 0,
            left: MAX_BYTES,
            stack: empty(),
            marks: Vec::new(),
            memo: empty(),
            objects: Vec::new(),
        }
    }

    /// The value of the next pickle.
    ///
    /// # Errors
    /// `Load` when it is cut off or damaged, takes too much memory, or holds anything but a state dict.
    pub(super) fn load(&mut self) -> Result<Value> {
        (self.stack, self.marks, self.memo) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let at = self.at;
            match self.byte()? {
                0x80 => drop(self.take(1)?), // PROTO
                b'.' => return self.pop(),   // STOP
                b'(' => {
                    self.charge(2 * size_of::<usize>())?;
                    self.marks.push(self.stack.len());
                }
                b'N' => self.push(Value::None)?,
                0x88 => self.push(Value::Bool(true))?,
                0x89 => self.push(Value::Bool(false))?,
                b'K' => self.integer(1)?, // BININT1
                b'M' => self.integer(2)?, // BININT2
                b'J' => {
                    let number = self.number(4)? as u32 as i32; // BININT
                    self.push(Value::Int(number.into()))?;
                }
                0x8a => self.long()?, // LONG1
                b'G' => {
                    self.take(8)?; // BINFLOAT
                    self.push(Value::Other)?;
                }
                b'X' => self.text(4)?, // BINUNICODE
                b'U' => self.text(1)?, // SHORT_BINSTRING
                b'}' => self.make(Object::Dict(Vec::new()))?,
                b']' | b')' => self.make(Object::Items(Vec::new()))?,
                0x8f => self.push(Value::Other)?, // EMPTY_SET
                b't' => {
                    let items = self.pop_mark()?;
                    self.make(Object::Items(items))?;
                }
                op @ 0x85..=0x87 => {
                    let items = self.pop_some(usize::from(op - 0x84))?; // TUPLE1 to TUPLE3
                    self.make(Object::Items(items))?;
                }
                b'a' => {
                    let item = self.pop()?; // APPEND
                    self.append(vec![item])?;
                }
                b'e' => {
                    let items = self.pop_mark()?; // APPENDS
                    self.append(items)?;
                }
                b's' => {
                    let items = self.pop_some(2)?; // SETITEM
                    self.set_items(&items)?;
                }
                b'u' => {
                    let items = self.pop_mark()?; // SETITEMS
                    self.set_items(&items)?;
                }
                b'c' => {
                    let global = self.global()?;
                    self.push(Value::Global(global))?;
                }
                b'R' | 0x81 => {
                    let (arguments, function) = (self.pop()?, self.pop()?); // REDUCE, NEWOBJ
                    self.call(function, arguments)?;
                }
                // BUILD sets attributes, such as the `_metadata` of a state dict, which no weight needs.
                b'b' => drop(self.pop()?),
                b'Q' => self.storage()?, // BINPERSID
                b'q' => self.memoize(1)?,
                b'r' => self.memoize(4)?,
                b'h' => self.recall(1)?,
                b'j' => self.recall(4)?,
                op => {
                    return Err(Error::load(format!(
                        "its pickle has the instruction 0x{op:02x} at byte {at}, which is none of a state dict that \
                         torch.save writes; {SAVE_AGAIN}"
                    )));
                }
            }
        }
    }

    /// The elements of a dictionary; `None` for another value.
    pub(super) fn dict(&self, value: Value) -> Option<&[(Value, Value)]> {
        match self.object(value)? {
            Object::Dict(entries) => Some(entries),
            _ => None,
        }
    }

    /// The elements of a tuple or a list; `None` for another value.
    pub(super) fn items(&self, value: Value) -> Option<&[Value]> {
        match self.object(value)? {
            Object::Items(items) => Some(items),
            _ => None,
        }
    }

    /// `None` for a value that is no tensor.
    pub(super) fn tensor(&self, value: Value) -> Option<&Tensor> {
        match self.object(value)? {
            Object::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// All storages that have been named.
    pub(super) fn storages(&self) -> impl Iterator<Item = &StorageId> {
        self.objects.iter().filter_map(|object| match object {
            Object::Storage(storage) => Some(storage),
            _ => None,
        })
    }

    /// `None` for a value that is no UTF-8 text.
    pub(super) fn str(&self, value: Value) -> Option<&'a str> {
        let Value::Text(start, end) = value else { return None };
        std::str::from_utf8(self.bytes.get(start as usize..end as usize)?).ok()
    }

    fn object(&self, value: Value) -> Option<&Object> {
        let Value::Object(at) = value else { return None };
        self.objects.get(at as usize)
    }

    fn top(&mut self) -> Option<&mut Object> {
        let Value::Object(at) = *self.stack.last()? else { return None };
        self.objects.get_mut(at as usize)
    }

    fn charge(&mut self, bytes: usize) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            Error::load(format!(
                "its values take more than {MAX_BYTES} bytes of memory; save the model in parts"
            ))
        })?;
        Ok(())
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..len)).ok_or_else(|| {
            Error::load(format!(
                "its pickle ends at byte {} in the middle; download the file again",
                self.bytes.len()
            ))
        })?;
        self.at += len;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// An unsigned number of up to eight bytes.
    fn number(&mut self, len: usize) -> Result<u64> {
        Ok(self.take(len)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn integer(&mut self, len: usize) -> Result<()> {
        let number = self.number(len)?;
        self.push(Value::Int(number as i64))
    }

    fn long(&mut self) -> Result<()> {
        let len = usize::from(self.byte()?);
        let bytes = self.take(len)?;
        let value = if len <= 8 {
            let mut whole = [if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 }; 8];
            whole[..len].copy_from_slice(bytes);
            Value::Int(i64::from_le_bytes(whole))
        } else {
            Value::Other
        };
        self.push(value)
    }

    fn text(&mut self, len: usize) -> Result<()> {
        let len = self.number(len)? as usize;
        self.take(len)?;
        // A pickle has at most 32 MiB.
        self.push(Value::Text((self.at - len) as u32, self.at as u32))
    }

    fn push(&mut self, value: Value) -> Result<()> {
        self.charge(size_of::<Value>())?;
        self.stack.push(value);
        Ok(())
    }

    fn make(&mut self, object: Object) -> Result<()> {
        let held = match &object {
            Object::Items(items) => items.len() * size_of::<Value>(),
            Object::Tensor(tensor) => 2 * tensor.shape.len() * size_of::<usize>() + tensor.storage.key.len(),
            Object::Storage(storage) => storage.key.len(),
            Object::Dict(entries) => entries.len() * 2 * size_of::<Value>(),
        };
        self.charge(size_of::<Object>() + held)?;
        self.objects.push(object);
        self.push(Value::Object(self.objects.len() as u32 - 1))
    }

    fn pop(&mut self) -> Result<Value> {
        Ok(self.pop_some(1)?[0])
    }

    fn pop_some(&mut self, len: usize) -> Result<Vec<Value>> {
        let bottom = self.marks.last().copied().unwrap_or(0);
        let at = self.stack.len().checked_sub(len).filter(|&at| at >= bottom).ok_or_else(damaged)?;
        self.left += len * size_of::<Value>();
        Ok(self.stack.split_off(at))
    }

    fn pop_mark(&mut self) -> Result<Vec<Value>> {
        let at = self.marks.pop().ok_or_else(damaged)?;
        self.left += 2 * size_of::<usize>();
        let items = self.stack.split_off(at);
        self.left += items.len() * size_of::<Value>();
        Ok(items)
    }

    fn append(&mut self, items: Vec<Value>) -> Result<()> {
        self.charge(2 * items.len() * size_of::<Value>())?;
        let Some(Object::Items(list)) = self.top() else { return Err(damaged()) };
        list.extend(items);
        Ok(())
    }

    fn set_items(&mut self, items: &[Value]) -> Result<()> {
        self.charge(2 * items.len() * size_of::<Value>())?;
        let (pairs, rest) = items.as_chunks::<2>();
        let (Some(Object::Dict(entries)), []) = (self.top(), rest) else { return Err(damaged()) };
        entries.extend(pairs.iter().map(|&[key, value]| (key, value)));
        Ok(())
    }

    fn memoize(&mut self, len: usize) -> Result<()> {
        let place = self.number(len)? as usize;
        let value = *self.stack.last().ok_or_else(damaged)?;
        // Python counts from 0, and from 1 where it was version 2.
        if place > self.memo.len() + 1 {
            return Err(damaged());
        }
        while self.memo.len() <= place {
            self.charge(2 * size_of::<Value>())?;
            self.memo.push(Value::Other);
        }
        self.memo[place] = value;
        Ok(())
    }

    fn recall(&mut self, len: usize) -> Result<()> {
        let place = self.number(len)? as usize;
        let value = *self.memo.get(place).ok_or_else(damaged)?;
        self.push(value)
    }

    fn line(&mut self) -> Result<&'a str> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|&byte| byte == b'\n').ok_or_else(damaged)?;
        self.at += len + 1;
        std::str::from_utf8(&rest[..len]).map_err(|_| damaged())
    }

    fn global(&mut self) -> Result<Global> {
        let (module, name) = (self.line()?, self.line()?);
        let class = name
            .strip_suffix("Storage")
            .filter(|_| matches!(module, "torch" | "torch.cuda" | "torch.storage"));
        let known = match (module, name) {
            ("collections", "OrderedDict") => Some(Global::OrderedDict),
            ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => Some(Global::RebuildTensor),
            ("torch._utils", "_rebuild_tensor_v3") => Some(Global::RebuildTensorV3),
            ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => {
                Some(Global::RebuildParameter)
            }
            ("torch._tensor", "_rebuild_from_type_v2") => Some(Global::RebuildFromType),
            ("torch", "Size") => Some(Global::Size),
            ("torch", "Tensor") | ("torch.nn.parameter", "Parameter") => Some(Global::Class),
            ("torch", name) if class.is_none() => dtype(name).map(Global::Dtype),
            _ => class.and_then(storage_type),
        };
        known.ok_or_else(|| {
            let name = format!("{module}.{name}");
            let name = escape::name(&name);
            Error::load(format!(
                "it holds {name}, which is no part of a state dict, and nothing of it is run; {SAVE_AGAIN}"
            ))
        })
    }

    fn call(&mut self, function: Value, arguments: Value) -> Result<()> {
        let Value::Global(mut function) = function else { return Err(damaged()) };
        let mut arguments = self.items(arguments).ok_or_else(damaged)?;
        if function == Global::RebuildFromType {
            let &[Value::Global(inner), _, inner_arguments, ..] = arguments else { return Err(damaged()) };
            function = inner;
            arguments = self.items(inner_arguments).ok_or_else(damaged)?;
        }
        match (function, arguments) {
            (Global::OrderedDict, []) => self.make(Object::Dict(Vec::new())),
            // As Python 2 wrote it: a list of pairs.
            (Global::OrderedDict, &[pairs]) => {
                let pairs = self.items(pairs).ok_or_else(damaged)?.iter();
                let pairs = pairs.map(|&pair| match self.items(pair) {
                    Some(&[key, value]) => Ok((key, value)),
                    _ => Err(damaged()),
                });
                let pairs = pairs.collect::<Result<_>>()?;
                self.make(Object::Dict(pairs))
            }
            (Global::RebuildTensor, &[storage, offset, shape, strides, ..]) => {
                self.make_tensor(storage, offset, shape, strides, None)
            }
            (
                Global::RebuildTensorV3,
                &[storage, offset, shape, strides, _, _, Value::Global(Global::Dtype(dtype)), ..],
            ) => self.make_tensor(storage, offset, shape, strides, Some(dtype)),
            (Global::RebuildParameter | Global::Size, &[value, ..]) => self.push(value),
            _ => Err(damaged()),
        }
    }

    fn make_tensor(
        &mut self,
        storage: Value,
        offset: Value,
        shape: Value,
        strides: Value,
        dtype: Option<Dtype>,
    ) -> Result<()> {
        let sizes = |value| -> Option<Vec<usize>> {
            let items = self.items(value).filter(|items| items.len() <= MAX_DIMENSIONS)?;
            items.iter().map(|&item| size(item)).collect()
        };
        let Some(Object::Storage(storage)) = self.object(storage) else { return Err(damaged()) };
        let tensor = (|| {
            let (shape, strides) = (sizes(shape)?, sizes(strides)?);
            let dtype = dtype.or(storage.dtype)?;
            let tensor = Tensor { storage: storage.clone(), dtype, offset: size(offset)?, shape, strides };
            (tensor.shape.len() == tensor.strides.len()).then_some(tensor)
        })();
        self.make(Object::Tensor(tensor.ok_or_else(damaged)?))
    }

    /// A storage by its place in the file: `("storage", class, key, device, number of elements)`, and where
    /// there is no zip also `None`, or the key, the offset and the size of a view.
    fn storage(&mut self) -> Result<()> {
        let id = self.pop()?;
        let storage = (|| {
            let items = self.items(id)?;
            let &[kind, Value::Global(Global::Storage(dtype)), key, _, num_elements, ..] = items else {
                return None;
            };
            let view = items.get(5).and_then(|&view| self.items(view));
            let (skipped, num_elements) = match view {
                Some(&[_, skipped, num_elements]) => (size(skipped)?, size(num_elements)?),
                Some(_) => return None,
                None => (0, size(num_elements)?),
            };
            let key = self.str(key)?.to_owned();
            (self.str(kind)? == "storage").then_some(StorageId { key, dtype, num_elements, skipped })
        })();
        self.make(Object::Storage(storage.ok_or_else(damaged)?))
    }
}

/// What to do with a file that is not read.
pub(super) const SAVE_AGAIN: &str =
    "load the model with transformers and save it as safetensors, by `save_pretrained(folder)`";

fn damaged() -> Error {
    Error::load(format!("its pickle is damaged or holds something else than a state dict; {SAVE_AGAIN}"))
}

fn size(value: Value) -> Option<usize> {
    let Value::Int(number) = value else { return None };
    usize::try_from(number).ok()
}
