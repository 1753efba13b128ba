package dev.loupe.corpus;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/** The first few of many in some order, whatever the order they come in. */
final class Extremes<T extends Serializable> implements Serializable {
  /** An order that travels with what is ordered; no two are equal in it. */
  interface Order<T> extends Comparator<T>, Serializable {}

  private static final long serialVersionUID = 1;

  private final int most;
  private final Order<T> order;
  private final ArrayList<T> first = new ArrayList<>();

  Extremes(int most, Order<T> order) {
    this.most = most;
    this.order = order;
  }

  void add(T each) {
    int place = first.size();
    while (place > 0 && order.compare(each, first.get(place - 1)) < 0) {
      place--;
    }
    if (place < most) {
      first.add(place, each);
      if (first.size() > most) {
        first.removeLast();
      }
    }
  }

  void merge(Extremes<T> other) {
    other.first.forEach(this::add);
  }

  List<T> list() {
    return List.copyOf(first);
  }
}
