//! Reads from a PTX module's text what a kernel's launch depends on: parameters, shared memory, the size of a block.
//! Not an assembler: what is not understood here is left to the driver's.

use std::iter::Peekable;

/// A parameter of a kernel: its first byte in the parameter block and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What a kernel declares.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// None if the list is not understood.
    pub(crate) parameters: Option<Vec<Parameter>>,
    /// Bytes of static shared memory: the module's, its functions', and the kernel's own.
    pub(crate) shared_bytes: u64,
    /// `.reqntid`: threads of a block; dimensions left out are 1.
    pub(crate) required: Option<[u32; 3]>,
    /// `.maxntid`: largest number of threads of a block, as a product.
    pub(crate) most: Option<u64>,
}

/// Whether the data are an object file (a cubin) rather than text.
pub(crate) fn is_cubin(data: &[u8]) -> bool {
    data.starts_with(b"\x7fELF")
}

/// Whether a cubin has code for the kernel, in a section named after it.
pub(crate) fn cubin_has(data: &[u8], name: &str) -> bool {
    let section = [b".text.", name.as_bytes(), b"\0"].concat();
    data.windows(section.len()).any(|window| window == section)
}

/// Splits the text into words and single punctuation characters, without comments and strings.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    const PUNCTUATION: &str = "(){}[],;<>=";
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start();
            let first = rest.chars().next()?;
            let skipped = if rest.starts_with("//") {
                Some(rest.find('\n').unwrap_or(rest.len()))
            } else if rest.starts_with("/*") {
                Some(rest.find("*/").map_or(rest.len(), |end| end + 2))
            } else if first == '"' {
                Some(rest[1..].find('"').map_or(rest.len(), |end| end + 2))
            } else {
                None
            };
            if let Some(skipped) = skipped {
                rest = &rest[skipped..];
                continue;
            }
            let word = |c: char| !c.is_whitespace() && !PUNCTUATION.contains(c) && c != '"';
            let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
            // A comment may follow without a blank.
            let end = rest[..end].find("/*").unwrap_or(end);
            let end = rest[..end].find("//").unwrap_or(end);
            let (token, behind) = rest.split_at(end.max(first.len_utf8()));
            rest = behind;
            return Some(token);
        }
    })
}

fn number(token: &str) -> Option<u64> {
    let digits = token.trim_end_matches('U');
    match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// Bytes of a type.
fn size_of_type(token: &str) -> Option<u64> {
    Some(match token {
        ".b8" | ".u8" | ".s8" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" => 8,
        ".b128" => 16,
        _ => return None,
    })
}

/// Bytes of an element, alignment, and the index of the name in a declaration: `.align 8 .b8 name[16]`.
fn head(words: &[&str]) -> Option<(u64, u64, usize)> {
    let (mut element, mut align, mut vector) = (None, None, 1);
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('.')) {
        match *word {
            ".v2" => vector = 2,
            ".v4" => vector = 4,
            // What follows describes the memory that the pointer points to.
            ".ptr" => {
                while words.get(at + 1).is_some_and(|w| w.starts_with('.')) {
                    at += 1 + usize::from(words[at + 1] == ".align");
                }
            }
            ".align" => {
                at += 1;
                align = Some(number(words.get(at)?)?);
            }
            word => element = element.or(size_of_type(word)),
        }
        at += 1;
    }
    let element = element? * vector;
    Some((element, align.unwrap_or(element).max(1), at))
}

/// Bytes of the elements, from the dimensions after their name: `[N]` each.
fn array(element: u64, mut dimensions: &[&str]) -> Option<u64> {
    let mut bytes = element;
    while let ["[", count, "]", behind @ ..] = dimensions {
        bytes = bytes.checked_mul(number(count)?)?;
        dimensions = behind;
    }
    dimensions.is_empty().then_some(bytes)
}

/// The parameters up to the closing parenthesis; the opening one is consumed already.
fn parameters<'a>(tokens: &mut impl Iterator<Item = &'a str>) -> Option<Vec<Parameter>> {
    let all: Vec<&str> = tokens.take_while(|token| *token != ")").collect();
    let mut list = Vec::new();
    let mut end: u64 = 0;
    for words in all.split(|token| *token == ",").filter(|w| !w.is_empty()) {
        let (element, align, name) = head(words)?;
        let bytes = array(element, words.get(name + 1..)?)?;
        let offset = end.checked_next_multiple_of(align)?;
        list.push(Parameter { offset, bytes });
        end = offset.checked_add(bytes)?;
    }
    Some(list)
}

/// Numbers separated by commas.
fn counts<'a>(tokens: &mut Peekable<impl Iterator<Item = &'a str>>) -> [u32; 3] {
    let mut counts = [1; 3];
    for count in &mut counts {
        let Some(n) = tokens.peek().and_then(|token| number(token)) else {
            break;
        };
        *count = u32::try_from(n).unwrap_or(u32::MAX);
        tokens.next();
        if tokens.next_if_eq(&",").is_none() {
            break;
        }
    }
    counts
}

/// What the text declares for the kernel `name`, or the names of all kernels if it is not among them.
pub(crate) fn entry(text: &str, name: &str) -> Result<Entry, Vec<String>> {
    let mut tokens = tokens(text).peekable();
    let mut found = None;
    let mut names = Vec::new();
    let mut shared: u64 = 0;
    // Whether these declarations belong to another kernel, and how many braces are open.
    let (mut elsewhere, mut depth) = (false, 0u32);
    let mut external = false;
    while let Some(token) = tokens.next() {
        match token {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                elsewhere &= depth > 0;
            }
            ".extern" => external = true,
            ".entry" => {
                let this = tokens.next().unwrap_or_default();
                names.push(this.to_owned());
                let list = match tokens.next_if_eq(&"(") {
                    Some(_) => parameters(&mut tokens),
                    None => Some(Vec::new()),
                };
                elsewhere = this != name;
                let mut entry = Entry {
                    parameters: list,
                    ..Entry::default()
                };
                while let Some(word) = tokens.next_if(|word| *word != "{" && *word != ";") {
                    match word {
                        ".reqntid" => entry.required = Some(counts(&mut tokens)),
                        ".maxntid" => {
                            let most = counts(&mut tokens);
                            entry.most = Some(most.iter().map(|&n| u64::from(n)).product());
                        }
                        _ => {}
                    }
                }
                if !elsewhere {
                    found = Some(entry);
                }
            }
            ".shared" => {
                let all: Vec<&str> = tokens.by_ref().take_while(|t| *t != ";").collect();
                if let Some((element, align, name)) = head(&all)
                    && !external
                    && !elsewhere
                {
                    let names = all.get(name..).unwrap_or_default();
                    for words in names.split(|token| *token == ",") {
                        let bytes = words.get(1..).and_then(|rest| array(element, rest));
                        let start = shared.checked_next_multiple_of(align);
                        shared = start.unwrap_or(shared).saturating_add(bytes.unwrap_or(0));
                    }
                }
                external = false;
            }
            ";" => {
                external = false;
                // A declaration without a body.
                elsewhere &= depth > 0;
            }
            _ => {}
        }
    }
    let mut entry = found.ok_or(names)?;
    entry.shared_bytes = shared;
    Ok(entry)
}

#[cfg(test)]
mod tests;
