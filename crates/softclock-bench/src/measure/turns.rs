//! Rounds in which subjects take turns.

use std::fmt::Display;

use crate::output::report::Context;

/// Subjects, each with its samples in the order of rounds.
pub type Found<T, S> = Vec<(T, Vec<S>)>;

/// Subjects that are measured once in each round. Each round begins with another subject, so that none always runs
/// first.
#[derive(Debug)]
pub struct Turns<'a, T, S> {
    context: &'a Context,
    rounds: usize,
    /// The rounds that are over.
    over: usize,
    names: Vec<String>,
    found: Found<T, S>,
}

impl<'a, T, S> Turns<'a, T, S> {
    /// Takes the subjects that the user chose by `--only`, and `rounds` unless the user chose another number.
    ///
    /// # Errors
    /// As [`chosen`].
    pub fn new(
        context: &'a Context,
        rounds: usize,
        subjects: impl IntoIterator<Item = T>,
        name: impl Fn(&T) -> String,
    ) -> Result<Self, String> {
        let subjects = chosen(context, subjects, &name)?;
        Ok(Self {
            context,
            rounds: context.rounds.unwrap_or(rounds).max(1),
            over: 0,
            names: subjects.iter().map(name).collect(),
            found: subjects.into_iter().map(|of| (of, Vec::new())).collect(),
        })
    }

    /// Returns the number of rounds.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Measures all rounds; returns the samples.
    ///
    /// # Errors
    /// The first error of `measure`, with the name of its subject.
    pub fn measure<E: Display>(
        mut self,
        mut measure: impl FnMut(&T) -> Result<S, E>,
    ) -> Result<Found<T, S>, String> {
        for _ in 0..self.rounds {
            self.round(&mut measure)?;
        }
        Ok(self.end())
    }

    /// Measures the next round. For experiments that measure something else before each; call [`end`](Self::end) after
    /// the last.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn round<E: Display>(
        &mut self,
        mut measure: impl FnMut(&T) -> Result<S, E>,
    ) -> Result<(), String> {
        let count = self.found.len();
        for turn in 0..count {
            let index = (self.over + turn) % count;
            let (name, (subject, samples)) = (&self.names[index], &mut self.found[index]);
            let (done, total) = (self.over * count + turn, self.rounds * count);
            let measured = self.context.round(done, total, name, || measure(subject));
            samples.push(measured.map_err(|error| format!("{name}: {error}"))?);
        }
        self.over += 1;
        Ok(())
    }

    /// Returns the samples of all rounds.
    pub fn end(self) -> Found<T, S> {
        let total = self.rounds * self.found.len();
        self.context.progress(total, total, "");
        self.found
    }
}

/// Returns the subjects whose names contain the text of `--only`, or all without it.
///
/// # Errors
/// No name contains the text; the error lists the names.
pub fn chosen<T>(
    context: &Context,
    subjects: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> String,
) -> Result<Vec<T>, String> {
    let mut subjects: Vec<T> = subjects.into_iter().collect();
    let Some(only) = &context.only else {
        return Ok(subjects);
    };
    let names: Vec<String> = subjects
        .iter()
        .map(|of| format!("'{}'", name(of)))
        .collect();
    subjects.retain(|of| name(of).contains(only));
    match subjects.is_empty() {
        false => Ok(subjects),
        true => Err(format!(
            "no name contains '{only}'; there are: {}",
            names.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(context: &Context, rounds: usize) -> Result<Turns<'_, char, usize>, String> {
        Turns::new(context, rounds, ['a', 'b', 'c'], char::to_string)
    }

    #[test]
    fn each_round_begins_with_another_subject() {
        let context = Context::new(true);
        let mut order = String::new();
        let found = turns(&context, 2).unwrap().measure(|&subject| {
            order.push(subject);
            Ok::<_, String>(order.len())
        });
        assert_eq!(order, "abcbca");
        let expected = [('a', vec![1, 6]), ('b', vec![2, 4]), ('c', vec![3, 5])];
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn the_user_chooses_rounds_and_subjects() {
        let mut context = Context::new(true);
        context.rounds = Some(3);
        context.only = Some("b".to_owned());
        let found = turns(&context, 2).unwrap().measure(|_| Ok::<_, String>(0));
        assert_eq!(found.unwrap(), [('b', vec![0; 3])]);
        context.only = Some("x".to_owned());
        assert_eq!(
            turns(&context, 2).unwrap_err(),
            "no name contains 'x'; there are: 'a', 'b', 'c'"
        );
    }

    #[test]
    fn an_error_names_its_subject() {
        let context = Context::new(true);
        let found = turns(&context, 1).unwrap().measure(|_| Err("late"));
        assert_eq!(found.unwrap_err(), "a: late");
    }
}
