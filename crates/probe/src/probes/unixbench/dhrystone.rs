//! Dhrystone 2: the statement mix of systems programs, without floating point.
//!
//! Source: R. P. Weicker, "Dhrystone: A Synthetic Systems Programming
//! Benchmark", CACM 27 (10), 1984, and "Dhrystone Benchmark: Rationale for
//! Version 2 and Measurement Rules", SIGPLAN Notices 23 (8), 1988. Its rules ask
//! that procedures are not inlined into one another; its strings have 30
//! characters and differ in the 20th. Ours are our own.

use std::hint::black_box;

type Text = [u8; 30];

const SOME: Text = *b"VMLAB RUNS A LOOP, SOME STRING";
const FIRST: Text = *b"VMLAB RUNS A LOOP, 1'ST STRING";
const SECOND: Text = *b"VMLAB RUNS A LOOP, 2'ND STRING";
const THIRD: Text = *b"VMLAB RUNS A LOOP, 3'RD STRING";

/// The enumeration that the program decides by; its fifth value is never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ident {
    One,
    Two,
    Three,
    Four,
}

/// A record that points to another one; both live in [`DhrystoneState::records`].
#[derive(Debug, Clone, Copy)]
struct DhrystoneRecord {
    next: usize,
    discriminant: Ident,
    ident: Ident,
    int: i32,
    text: Text,
}

/// The program's global variables, and those of its main loop.
pub(super) struct DhrystoneState {
    records: [DhrystoneRecord; 2],
    int: i32,
    flag: bool,
    char_1: u8,
    char_2: u8,
    array_1: [i32; 50],
    array_2: [[i32; 50]; 50],
    locals: Locals,
    runs: i32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Locals {
    ints: [i32; 3],
    ident: Ident,
    text_1: Text,
    text_2: Text,
}

/// The record that the program's pointer shows to, and the other one.
const POINTED: usize = 0;
const OTHER: usize = 1;

impl DhrystoneState {
    pub(super) fn new() -> Self {
        let empty = DhrystoneRecord {
            next: POINTED,
            discriminant: Ident::One,
            ident: Ident::One,
            int: 0,
            text: [0; 30],
        };
        let pointed = DhrystoneRecord {
            next: OTHER,
            discriminant: Ident::One,
            ident: Ident::Three,
            int: 40,
            text: SOME,
        };
        let mut array_2 = [[0; 50]; 50];
        array_2[8][7] = 10;
        Self {
            records: [pointed, empty],
            int: 0,
            flag: false,
            char_1: 0,
            char_2: 0,
            array_1: [0; 50],
            array_2,
            locals: Locals { ints: [0; 3], ident: Ident::One, text_1: FIRST, text_2: FIRST },
            runs: 0,
        }
    }

    /// Runs the main loop `n` times.
    pub(super) fn run(&mut self, n: u64) {
        let mut locals = self.locals;
        for _ in 0..n {
            self.runs = self.runs.wrapping_add(1);
            self.procedure_5();
            self.procedure_4();
            let [mut one, mut two, mut three] = [2, 3, 0];
            locals.text_2 = SECOND;
            locals.ident = Ident::Two;
            self.flag = !self.function_2(&locals.text_1, &locals.text_2);
            while one < two {
                three = 5 * one - two;
                procedure_7(one, two, &mut three);
                one += 1;
            }
            self.procedure_8(one, three);
            self.procedure_1(POINTED);
            for character in b'A'..=self.char_2 {
                if locals.ident == self.function_1(character, b'C') {
                    self.procedure_6(Ident::One, &mut locals.ident);
                    locals.text_2 = THIRD;
                    two = self.runs;
                    self.int = self.runs;
                }
            }
            two *= one;
            one = two / three;
            two = 7 * (two - three) - one;
            self.procedure_2(&mut one);
            locals.ints = black_box([one, two, three]);
        }
        self.locals = locals;
    }

    /// True if all variables have the values that the benchmark's author gives
    /// for the end of a run.
    pub(super) fn is_right(&self) -> bool {
        let [pointed, other] = &self.records;
        let expected =
            Locals { ints: [5, 13, 7], ident: Ident::Two, text_1: FIRST, text_2: SECOND };
        self.runs > 0
            && (self.int, self.flag, self.char_1, self.char_2) == (5, true, b'A', b'B')
            && self.array_1[8] == 7
            && self.array_2[8][7] == self.runs.wrapping_add(10)
            && (pointed.discriminant, pointed.ident, pointed.int, pointed.text)
                == (Ident::One, Ident::Three, 17, SOME)
            && (other.discriminant, other.ident, other.int, other.text)
                == (Ident::One, Ident::Two, 18, SOME)
            && pointed.next == other.next
            && Locals { ident: Ident::Two, ..self.locals } == expected
    }

    #[inline(never)]
    fn procedure_1(&mut self, record: usize) {
        let next = self.records[record].next;
        self.records[next] = self.records[POINTED];
        self.records[record].int = 5;
        self.records[next].int = self.records[record].int;
        self.records[next].next = self.records[record].next;
        self.procedure_3(next);
        if self.records[next].discriminant == Ident::One {
            self.records[next].int = 6;
            let mut ident = self.records[next].ident;
            self.procedure_6(self.records[record].ident, &mut ident);
            self.records[next].ident = ident;
            self.records[next].next = self.records[POINTED].next;
            let mut int = self.records[next].int;
            procedure_7(int, 10, &mut int);
            self.records[next].int = int;
        } else {
            self.records[record] = self.records[next];
        }
    }

    #[inline(never)]
    fn procedure_2(&self, number: &mut i32) {
        let (mut local, mut ident) = (*number + 10, Ident::Two);
        loop {
            if self.char_1 == b'A' {
                local -= 1;
                *number = local - self.int;
                ident = Ident::One;
            }
            if ident == Ident::One {
                break;
            }
        }
    }

    #[inline(never)]
    fn procedure_3(&mut self, record: usize) {
        self.records[record].next = self.records[POINTED].next;
        let int = self.int;
        procedure_7(10, int, &mut self.records[POINTED].int);
    }

    #[inline(never)]
    fn procedure_4(&mut self) {
        let local = self.char_1 == b'A';
        self.flag |= local;
        self.char_2 = b'B';
    }

    #[inline(never)]
    fn procedure_5(&mut self) {
        self.char_1 = b'A';
        self.flag = false;
    }

    #[inline(never)]
    fn procedure_6(&self, value: Ident, result: &mut Ident) {
        *result = if function_3(value) { value } else { Ident::Four };
        *result = match value {
            Ident::One => Ident::One,
            Ident::Two if self.int > 100 => Ident::One,
            Ident::Two => Ident::Four,
            Ident::Three => Ident::Two,
            Ident::Four => return,
        };
    }

    #[inline(never)]
    fn procedure_8(&mut self, first: i32, second: i32) {
        let at = (first + 5) as usize;
        self.array_1[at] = second;
        self.array_1[at + 1] = self.array_1[at];
        self.array_1[at + 30] = at as i32;
        for index in at..=at + 1 {
            self.array_2[at][index] = at as i32;
        }
        let counter = &mut self.array_2[at][at - 1];
        *counter = counter.wrapping_add(1);
        self.array_2[at + 20][at] = self.array_1[at];
        self.int = 5;
    }

    #[inline(never)]
    fn function_1(&mut self, first: u8, second: u8) -> Ident {
        let copy = first;
        if copy != second {
            return Ident::One;
        }
        self.char_1 = copy;
        Ident::Two
    }

    #[inline(never)]
    fn function_2(&mut self, first: &Text, second: &Text) -> bool {
        let (mut at, mut character) = (2, b' ');
        while at <= 2 {
            if self.function_1(first[at], second[at + 1]) == Ident::One {
                character = b'A';
                at += 1;
            }
        }
        if (b'W'..b'Z').contains(&character) {
            at = 7;
        }
        if character == b'R' {
            true
        } else if black_box(first) > black_box(second) {
            self.int = at as i32 + 7;
            true
        } else {
            false
        }
    }
}

#[inline(never)]
fn procedure_7(first: i32, second: i32, result: &mut i32) {
    *result = second + (first + 2);
}

#[inline(never)]
fn function_3(value: Ident) -> bool {
    value == Ident::Three
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_as_published() {
        for runs in [1, 2, 1000] {
            let mut state = DhrystoneState::new();
            assert!(!state.is_right());
            state.run(runs);
            assert!(state.is_right(), "{:?}", state.locals);
            state.array_2[8][7] += 1;
            assert!(!state.is_right());
        }
    }
}
