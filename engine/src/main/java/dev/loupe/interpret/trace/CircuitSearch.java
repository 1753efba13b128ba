package dev.loupe.interpret.trace;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.Function;
import java.util.stream.IntStream;

/**
 * Looks for a small set that keeps a share of an effect, among things in the order of their own
 * effects, the strongest first.
 *
 * @param <T> what the sets are of
 */
final class CircuitSearch<T> {
  private static final int AT_ONCE = 8; // sets that are tried

  /** How many of the strongest parts may have to be kept before some are taken out again. */
  static int widest(int most) {
    return 2 * most;
  }

  /**
   * A set.
   *
   * @param kept the share that it keeps
   */
  record Found<T>(List<T> members, double kept) {}

  private final Function<List<List<T>>, double[]> shares;
  private final double keep;

  /**
   * @param shares what each of some sets keeps
   * @param keep the least share
   */
  CircuitSearch(Function<List<List<T>>, double[]> shares, double keep) {
    this.shares = shares;
    this.keep = keep;
  }

  private double share(List<T> set) {
    return shares.apply(List.of(set))[0];
  }

  /**
   * As few of the strongest as keep the share.
   *
   * @return all, if they do not
   */
  Found<T> grow(List<T> strongest) {
    return grow(new Found<>(List.of(), 0), strongest);
  }

  private Found<T> grow(Found<T> first, List<T> more) {
    List<T> all = new ArrayList<>(first.members);
    all.addAll(more);
    int begin = first.members.size() + 1;
    for (int from = begin; from <= all.size(); from += AT_ONCE) {
      List<List<T>> sets = new ArrayList<>();
      for (int size = from; size < from + AT_ONCE && size <= all.size(); size++) {
        sets.add(all.subList(0, size));
      }
      double[] kept = shares.apply(sets);
      for (int i = 0; i < kept.length; i++) {
        if (kept[i] >= keep || from + i == all.size()) {
          return new Found<>(List.copyOf(all.subList(0, from + i)), kept[i]);
        }
      }
    }
    return first;
  }

  /**
   * Adds others to a set that does not keep the share, in the order of what each adds to it: some
   * do nothing where all else runs and much where most is replaced.
   *
   * @param most members of the larger set
   */
  Found<T> extend(Found<T> found, List<T> others, int most) {
    if (found.kept >= keep || others.isEmpty() || found.members.size() >= most) {
      return found;
    }
    List<List<T>> sets = new ArrayList<>();
    for (T other : others) {
      List<T> set = new ArrayList<>(found.members);
      set.add(other);
      sets.add(set);
    }
    double[] kept = shares.apply(sets);
    List<T> ranked =
        IntStream.range(0, kept.length)
            .filter(i -> kept[i] > found.kept)
            .boxed()
            .sorted(Comparator.comparingDouble(i -> -kept[i]))
            .limit(most - found.members.size())
            .map(others::get)
            .toList();
    return grow(found, ranked);
  }

  /** Likewise, found by halving, in few trials: one fewer of the strongest does not keep it. */
  Found<T> bisect(List<T> strongest) {
    int tooFew = 0;
    int enough = strongest.size();
    double kept = share(strongest);
    while (enough - tooFew > 1) {
      int middle = (tooFew + enough) / 2;
      double of = share(strongest.subList(0, middle));
      if (of >= keep) {
        enough = middle;
        kept = of;
      } else {
        tooFew = middle;
      }
    }
    return new Found<>(List.copyOf(strongest.subList(0, enough)), kept);
  }

  /** How many trials {@link #bisect} takes at most. */
  static int trials(long n) {
    return 1 + Long.SIZE - Long.numberOfLeadingZeros(Math.max(n, 1));
  }

  /** Takes out, the weakest first, whom the others can do without, until there is none. */
  Found<T> prune(Found<T> found) {
    List<T> members = new ArrayList<>(found.members);
    double kept = found.kept;
    boolean changed = true;
    while (changed) {
      changed = false;
      for (T member : List.copyOf(members.reversed())) {
        List<T> rest = new ArrayList<>(members);
        boolean _ = rest.remove(member);
        double without = share(rest);
        if (without >= keep) {
          members = rest;
          kept = without;
          changed = true;
        }
      }
    }
    return new Found<>(List.copyOf(members), kept);
  }
}
