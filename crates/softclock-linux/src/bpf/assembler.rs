//! Assembles a BPF program whose jumps are to labels.

use super::Instruction;

/// A program in the making.
#[derive(Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    /// The place of each label, once it is known.
    labels: Vec<Option<usize>>,
    /// The jumps, by their places, and their labels.
    jumps: Vec<(usize, Label)>,
}

/// A place in the program to jump to.
#[derive(Clone, Copy)]
pub(crate) struct Label(usize);

impl Assembler {
    /// A label for a later place.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Gives the label the place of the next instruction.
    ///
    /// # Panics
    /// If the label has a place.
    pub(crate) fn place(&mut self, label: Label) {
        let before = self.labels[label.0].replace(self.code.len());
        assert!(before.is_none(), "a label has one place");
    }

    /// Appends instructions.
    pub(crate) fn extend(&mut self, code: impl IntoIterator<Item = Instruction>) {
        self.code.extend(code);
    }

    /// Appends an instruction that skips others: those up to the label, whatever number it has.
    pub(crate) fn jump(&mut self, instruction: Instruction, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.code.push(instruction);
    }

    /// The program.
    ///
    /// # Panics
    /// If a label has no place, or one before a jump to it, as of a loop.
    pub(crate) fn finish(mut self) -> Vec<Instruction> {
        for (at, Label(label)) in self.jumps {
            let to = self.labels[label].expect("each label has a place");
            let skipped = to.checked_sub(at + 1).expect("a jump forwards");
            let skipped = i16::try_from(skipped).expect("a short program");
            self.code[at] = self.code[at].skipping(skipped);
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_reach_their_labels() {
        let mut program = Assembler::default();
        let [a, b] = [(); 2].map(|()| program.label());
        program.jump(Instruction::skip_if_not(1, 5, 0), b);
        program.jump(Instruction::skip(0), a);
        program.extend([Instruction::result(0)]);
        program.place(a);
        program.place(b);
        program.extend([Instruction::EXIT]);
        assert_eq!(
            program.finish(),
            [
                Instruction::skip_if_not(1, 5, 2),
                Instruction::skip(1),
                Instruction::result(0),
                Instruction::EXIT,
            ]
        );
    }
}
