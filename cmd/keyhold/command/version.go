package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type versionView struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (v versionView) draw(p *page) {
	line := v.Version
	if v.Revision != "" {
		line += " (" + v.Revision + ")"
	}
	p.line(fmt.Sprintf("%s %s, %s, %s", "keyhold", clean(line), v.Go, v.Platform))
}

func (s *setting) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := s.begin(c)
			if err != nil {
				return err
			}
			return r.show(s.built())
		},
	}
}

// built tells the version given, or that of the Keyhold module in this program.
func (s *setting) built() versionView {
	v := versionView{Version: s.options.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if v.Version != "" || !ok {
		return v
	}
	const self = "github.com/keyhold/keyhold"
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == self {
			v.Version = m.Version
		}
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && info.Main.Path == self {
			v.Revision = cut(setting.Value, 13)[:min(12, len(setting.Value))]
		}
	}
	return v
}
